"""The ways in and out: quantize, from_int_repr, dequantize, and what each refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

import halfstep as hs
from halfstep import (
    ArgumentError,
    ArgumentTypeError,
    HalfstepWarning,
    NonFiniteError,
    PerChannel,
    PerGroup,
    QSpec,
    QTensor,
)
from tests.strategies import DTYPES, QUICK, qtensors
from tests.tensor.results import assert_scale_fits

X = torch.tensor([[-1.0, 0.0, 2.0], [0.5, 4.0, -8.0]])


@given(q=qtensors())
@QUICK
def test_from_int_repr_is_the_inverse_of_int_repr(q: QTensor) -> None:
    """The integers, scale and zero point of any tensor make the same tensor."""
    scale, zero_point = q.qparams()
    again = hs.from_int_repr(
        q.int_repr(), q.spec, scale=scale, zero_point=zero_point, dtype=q.dtype
    )
    assert torch.equal(again, q)
    assert torch.equal(again.dequantize(), q.dequantize())
    assert_scale_fits(again)


@given(q=qtensors(float_zero_point=False))
@QUICK
def test_int_repr_is_a_copy(q: QTensor) -> None:
    """Changing what int_repr returned does not change the tensor; nor do the given integers."""
    before = q.int_repr()
    q.int_repr().fill_(0)
    assert torch.equal(q.int_repr(), before)
    scale, zero_point = q.qparams()
    again = hs.from_int_repr(before, q.spec, scale=scale, zero_point=zero_point)
    expected = again.dequantize()
    before.fill_(0)
    assert torch.equal(again.dequantize(), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_every_dtype(dtype: hs.QDType) -> None:
    """Each format quantizes within half a step and gives integers of its own storage."""
    q = hs.quantize(X, dtype)
    assert q.int_repr().dtype == dtype.storage
    assert float((q.dequantize() - X).abs().max()) <= 0.5001 * float(q.scale) + 1e-6 * 8
    assert q.spec == QSpec(dtype)


def test_memory_format_and_float_dtype_are_kept() -> None:
    """Channels-last input gives channels-last integers and floats; float16 stays float16."""
    x = torch.randn(2, 3, 4, 5, dtype=torch.float16).to(memory_format=torch.channels_last)
    q = hs.quantize(x, hs.int8, axis=1)
    assert q.stride() == q.int_repr().stride() == q.dequantize().stride() == x.stride()
    assert q.is_contiguous(memory_format=torch.channels_last)
    assert q.dtype == q.dequantize().dtype == torch.float16


def test_integer_dtypes_of_torch_name_formats() -> None:
    """torch.int8 may stand where hs.int8 does."""
    assert torch.equal(hs.quantize(X, torch.int8), hs.quantize(X, hs.int8))


def test_axis_is_short_for_per_channel() -> None:
    """axis=-1 with one number of each qparam: the number for every channel."""
    q = hs.quantize(X, hs.int8, axis=-1, scale=0.5, zero_point=1)
    assert q.spec == QSpec(hs.int8, PerChannel(1))
    assert q.q_per_channel_scales().tolist() == [0.5] * 3
    assert q.q_per_channel_zero_points().tolist() == [1] * 3


def test_given_qparams_are_copied() -> None:
    """Changing a scale or zero point after the call does not change the tensor."""
    scale, zero_point = torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.int32)
    q = hs.quantize(X, hs.int8, axis=0, scale=scale, zero_point=zero_point)
    made = [
        q,
        hs.from_int_repr(q.int_repr(), q.spec, scale=scale, zero_point=zero_point),
        hs.add(q, q, scale=scale, zero_point=zero_point),
    ]
    before = [one.dequantize() for one in made]
    scale.fill_(9)
    zero_point.fill_(9)
    assert all(map(torch.equal, before, (one.dequantize() for one in made)))


REFUSED: dict[str, Callable[[], Any]] = {
    "is quantized already": lambda: hs.quantize(hs.quantize(X, hs.int8), hs.int4),
    "x is torch.int64": lambda: hs.quantize(torch.tensor([1]), hs.int8),
    "quantize x.real and x.imag": lambda: hs.quantize(X * 1j, hs.int8),
    "hs.ptq.quantize": lambda: hs.quantize(nn.Linear(1, 1), hs.int8),  # type: ignore[arg-type]  # the point
    "zero_point is given without scale": lambda: hs.quantize(X, hs.int8, zero_point=0),
    "zero_point is missing": lambda: hs.quantize(X, hs.int8, scale=1.0),
    "nan='drop' is not a policy": lambda: hs.quantize(X, hs.int8, nan="drop"),
    "axis=2 is not an axis": lambda: hs.quantize(X, hs.int8, axis=2),
    "3 scales, but axis 0 has 2": lambda: hs.quantize(
        X, hs.int8, axis=0, scale=[1.0] * 3, zero_point=0
    ),
    "does not divide": lambda: hs.quantize(X, QSpec(hs.int8, PerGroup(1, 2))),
    "scale=0 is not a step": lambda: hs.quantize(X, hs.int8, scale=0.0, zero_point=0),
    "is fractional": lambda: hs.quantize(X, hs.int8, scale=1.0, zero_point=0.1),
    "x holds 1 NaN in 2 values": lambda: hs.quantize(torch.tensor([1.0, float("nan")]), hs.int8),
    "takes a tensor of integers": lambda: hs.from_int_repr(X, hs.int8, scale=1.0, zero_point=0),
    "is not a float dtype": lambda: hs.from_int_repr(
        torch.tensor([1]), hs.int8, scale=1.0, zero_point=0, dtype=torch.int8
    ),
    "ints run from 300 to 300": lambda: hs.from_int_repr(
        torch.tensor([300]), hs.int8, scale=1.0, zero_point=0
    ),
    "dtype='float32' is not a float dtype": lambda: hs.from_int_repr(
        torch.tensor([1]), hs.int8, scale=1.0, zero_point=0, dtype="float32"
    ),
    "dtype=torch.int8 is not a float dtype": lambda: hs.dequantize(
        hs.quantize(X, hs.int8), dtype=torch.int8
    ),
    "this is a int": lambda: hs.dequantize(5, scale=1.0),
    "this is a str": lambda: hs.dequantize([hs.quantize(X, hs.int8), "no tensor"]),
    "dtype=torch.float32 is not an integer format": lambda: hs.dequantize(X, scale=1.0),
    "quantization_error takes a torch tensor, and x is a list": lambda: hs.quantize(
        X, hs.int8
    ).quantization_error([1]),
    "quantization_error takes floats, and x is torch.int64": lambda: hs.quantize(
        X, hs.int8
    ).quantization_error(X.long()),
    "ints run from 18446744073709551616 to": lambda: hs.from_int_repr(
        torch.tensor([2**64 - 1], dtype=torch.uint64), hs.int8, scale=1.0, zero_point=0
    ),
    "scale is missing": lambda: hs.dequantize(torch.tensor([1], dtype=torch.int8)),
    "knows its own scale": lambda: hs.dequantize(hs.quantize(X, hs.int8), scale=1.0),
}


@pytest.mark.parametrize("message", sorted(REFUSED))
def test_refusals(message: str) -> None:
    """Each wrong argument is an error of Halfstep's that names it."""
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message.replace(".", r"\.")):
        REFUSED[message]()


def test_nan_policies() -> None:
    """NaN raises, or counts as 0 with a warning that counts; infinities saturate."""
    x = torch.tensor([1.0, float("nan"), float("inf")])
    with pytest.raises(NonFiniteError):
        hs.quantize(x, hs.int8)
    with pytest.warns(HalfstepWarning, match="1 of 3 values are NaN and were quantized as 0"):
        q = hs.quantize(x, hs.int8, nan="ignore")
    assert q.dequantize()[1] == 0
    assert q.int_repr()[2] == 127


def test_dequantize_of_lists_and_integers() -> None:
    """Plain integers with qparams, and a list of quantized tensors, which know their own."""
    ints = torch.tensor([[1, 2], [3, 4]], dtype=torch.int16)
    x = hs.dequantize(ints, scale=[0.5, 1.0], zero_point=[0, 1], axis=1, dtype=torch.float64)
    assert isinstance(x, Tensor)
    assert x.tolist() == [[0.5, 1.0], [1.5, 3.0]]
    q = hs.quantize(X, hs.int8)
    many = hs.dequantize([q, q])
    assert isinstance(many, list)
    assert torch.equal(many[1], q.dequantize())


def test_quantization_error() -> None:
    """dB, steps and saturation against the floats, and a shape that does not match."""
    x = torch.tensor([0.25, 1.0, 90.0])
    q = hs.quantize(x, hs.int8, scale=0.5, zero_point=0)
    error = q.quantization_error(x)
    assert error.max_steps == pytest.approx(53.0)
    assert error.saturated == pytest.approx(1 / 3)
    with pytest.raises(ArgumentError, match="give the floats that were quantized"):
        q.quantization_error(X)


def test_dequantize_of_lists_passes_its_arguments_on() -> None:
    """Scale, zero point, axis and dtype hold for every tensor of a list, and of lists in it."""
    ints = torch.tensor([[1, 2], [3, 4]], dtype=torch.int8)
    how: Any = {"scale": [0.5, 1.0], "zero_point": [0, 1], "axis": 1, "dtype": torch.float64}
    one = hs.dequantize(ints, **how)
    first, (second, third) = hs.dequantize([ints, (ints, ints)], **how)
    for found in (first, second, third):
        assert found.dtype == torch.float64
        assert torch.equal(found, one)
    q = hs.quantize(X.bfloat16(), hs.int8)
    assert hs.dequantize(q).dtype == torch.bfloat16
    exact = hs.dequantize([[q]], dtype=torch.float64)[0][0]
    assert torch.equal(exact, ((q.int_repr() - q.zero_point) * q.scale).double())
    with pytest.raises(ArgumentError, match="knows its own scale"):
        hs.dequantize([q], scale=1.0)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_pytorchs_own_quantized_tensor_is_told_the_way() -> None:
    """``x.float()`` fails on one, so the error names what works."""
    theirs = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(hs.ArgumentTypeError, match=r"use x\.dequantize\(\), or hs\.from_int_repr"):
        hs.quantize(theirs, hs.int8)
