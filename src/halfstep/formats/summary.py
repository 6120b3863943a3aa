"""What is in a tensor, in numbers, from one pass over its elements in pieces."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from halfstep.formats.chunks import chunks, comparable
from halfstep.tensor import QTensor

COUNTED_BITS: Final = 16  # formats of up to so many bits are counted code by code

Progress: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class PlainSummary:
    """A plain tensor: its finite range, None where there is none, and what is not finite."""

    low: float | None
    high: float | None
    nan: int
    infinite: int


@dataclass(frozen=True, slots=True)
class QuantizedSummary:
    """A quantized tensor: its parameters' ranges and how it uses its codes.

    codes_used: share of the codes in [qmin, qmax] that occur; None above 16 bits or when empty.
    saturated: share of the elements that sit on qmin or qmax.
    counts: how often each code from qmin on occurs; None above 16 bits.
    """

    qmin: int
    scale: tuple[float, float] | None
    zero_point: tuple[float, float] | None
    code_range: tuple[int, int] | None
    codes_used: float | None
    saturated: float
    counts: Tensor | None


def summarize(
    tensor: Tensor, progress: Progress = lambda count: None
) -> PlainSummary | QuantizedSummary:
    """The summary of a tensor; ``progress`` is told the bytes read, piece by piece.

    >>> summarize(torch.tensor([1.0, -2.0, float("nan")]))
    PlainSummary(low=-2.0, high=1.0, nan=1, infinite=0)
    """
    if isinstance(tensor, QTensor):
        return _summarize_codes(tensor, progress)
    return _summarize_values(tensor, progress)


def _summarize_values(tensor: Tensor, progress: Progress) -> PlainSummary:
    low, high, nan, infinite = math.inf, -math.inf, 0, 0
    if not tensor.is_complex():
        for chunk in chunks(tensor):
            values = comparable(chunk)
            finite = values[torch.isfinite(values)] if values.is_floating_point() else values
            if finite.numel() < values.numel():
                nan += int(values.isnan().sum())
                infinite += int(values.isinf().sum())
            if finite.numel():
                low, high = min(low, finite.min().item()), max(high, finite.max().item())
            progress(chunk.numel() * chunk.element_size())
    is_empty = low > high
    return PlainSummary(None if is_empty else low, None if is_empty else high, nan, infinite)


def _summarize_codes(q: QTensor, progress: Progress) -> QuantizedSummary:
    qmin, qmax = q.spec.qmin, q.spec.qmax
    is_counted = q.spec.dtype.bits <= COUNTED_BITS
    counts = torch.zeros(qmax - qmin + 1, dtype=torch.int64) if is_counted else None
    low, high, saturated = qmax, qmin, 0
    for chunk in chunks(q.ints):
        codes = chunk.to(torch.int32)
        if counts is not None:
            counts += torch.bincount(codes - qmin, minlength=counts.numel())
        low, high = min(low, int(codes.min())), max(high, int(codes.max()))
        saturated += int(((codes == qmin) | (codes == qmax)).sum())
        progress(chunk.numel() * chunk.element_size())
    numel = q.numel()
    used = None if counts is None or not numel else int((counts > 0).sum()) / counts.numel()
    return QuantizedSummary(
        qmin,
        value_range(q.scale),
        value_range(q.zero_point),
        (low, high) if numel else None,
        used,
        saturated / numel if numel else 0.0,
        counts,
    )


def value_range(tensor: Tensor) -> tuple[float, float] | None:
    """The least and the greatest value; None for an empty tensor.

    >>> value_range(torch.tensor([2, -1]))
    (-1, 2)
    """
    return (tensor.min().item(), tensor.max().item()) if tensor.numel() else None
