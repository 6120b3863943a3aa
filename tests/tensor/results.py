"""What a call gave on a quantized tensor, against what it gives on the floats."""

import warnings
from typing import Any, TypeAlias

import torch
from torch import Tensor

from halfstep import QTensor
from tests.assertions import assert_same_bits
from tests.strategies import repeated
from tests.tensor.operations import Operation

Outcome: TypeAlias = list[Tensor] | Exception


def outcome(operation: Operation, t: Tensor) -> Outcome:
    """The tensors that an operation gives, or what it raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, of shapes that it will refuse one day
            result = operation(t)
    except Exception as error:  # noqa: BLE001 (whatever torch raises is the outcome)
        return error
    return list(result) if isinstance(result, tuple | list) else [result]


def wide(ints: Tensor) -> Tensor:
    """Integers in a dtype for which torch has every operator."""
    return ints.to(torch.int64)


def assert_scale_fits(q: QTensor) -> None:
    """Scale and zero point have the shape that the granularity says, and strides are the codes'."""
    expected = q.spec.granularity.scale_shape(tuple(q.shape))
    assert tuple(q.scale.shape) == tuple(q.zero_point.shape) == expected
    assert q.scale.dtype == torch.float32
    assert q.zero_point.dtype == q.spec.zero_point_dtype
    assert q.int_repr().dtype == q.spec.dtype.storage
    assert not q.numel() or int(wide(q.int_repr()).min()) >= q.spec.qmin
    assert not q.numel() or int(wide(q.int_repr()).max()) <= q.spec.qmax


def assert_within_half_a_step(q: Tensor, exact: Tensor) -> None:
    """Of the exact values: a quantized result within half a step, a float one within rounding."""
    assert q.shape == exact.shape
    assert q.dtype == exact.dtype
    if isinstance(q, QTensor):
        assert_scale_fits(q)
        # What float32 itself rounds away: once for each of the operations before the last.
        tolerance = 0.5001 * repeated(q.scale, tuple(q.shape)) + 1e-6 * exact.abs()
        off = (q.dequantize().double() - exact.double()).abs()
        assert bool((off <= tolerance).all()), f"off by {float((off - tolerance).max())} more"
    else:
        torch.testing.assert_close(q, exact, rtol=1e-5, atol=1e-5, equal_nan=True)


def stored_copy(q: QTensor) -> list[Tensor]:
    """Copies of the inner tensors, to see later that nothing changed them."""
    return [part.clone() for part in q.stored()]


def assert_unchanged(q: QTensor, before: list[Tensor]) -> None:
    """The inner tensors have the bits that they had."""
    for part, copy in zip(q.stored(), before, strict=True):
        assert_same_bits(part, copy)


def single(result: Any) -> QTensor:
    """A result that must be one quantized tensor."""
    assert isinstance(result, QTensor), f"{type(result).__name__} instead of QTensor"
    return result
