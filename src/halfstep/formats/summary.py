"""What is in a tensor, in numbers, from one pass over its elements in pieces."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from halfstep.formats.chunks import chunks, comparable, repeats
from halfstep.tensor import QTensor

COUNTED_BITS: Final = 16  # formats of up to so many bits are counted code by code
SMALL: Final = 4096  # up to so many integers are counted at once, for less than a loop costs

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
    for chunk in chunks(tensor) if not tensor.is_complex() else ():
        values = comparable(chunk)
        least, greatest = (bound.item() for bound in torch.aminmax(values))
        if not (math.isfinite(least) and math.isfinite(greatest)):
            nan += int(values.isnan().sum())
            infinite += int(values.isinf().sum())
            finite = values[values.isfinite()]
            has_some = finite.numel() > 0
            least = finite.min().item() if has_some else math.inf
            greatest = finite.max().item() if has_some else -math.inf
        low, high = min(low, least), max(high, greatest)
        progress(chunk.numel() * chunk.element_size())
    times = repeats(tensor)
    if low > high:
        return PlainSummary(None, None, nan * times, infinite * times)
    return PlainSummary(low, high, nan * times, infinite * times)


def _summarize_codes(q: QTensor, progress: Progress) -> QuantizedSummary:
    elements = q.ints.numel()
    is_counted = q.spec.dtype.bits <= COUNTED_BITS
    counts = _count_codes(q, progress) if is_counted else None
    if counts is None:
        code_range, on_edge = _wide_codes(q, progress)
    else:
        used = counts.numpy().nonzero()[0] + q.spec.qmin
        code_range = (int(used[0]), int(used[-1])) if len(used) else None
        on_edge = int(counts[0] + counts[-1])
    return QuantizedSummary(
        qmin=q.spec.qmin,
        scale=value_range(q.scale),
        zero_point=value_range(q.zero_point),
        code_range=code_range,
        codes_used=len(used) / len(counts) if counts is not None and len(used) else None,
        saturated=on_edge / elements if elements else 0.0,
        counts=counts,
    )


def _count_codes(q: QTensor, progress: Progress) -> Tensor:
    """How often each code from qmin to qmax occurs."""
    ints, levels = q.ints, q.spec.qmax - q.spec.qmin + 1
    if ints.numel() <= SMALL:
        progress(ints.numel() * ints.element_size())
        codes = ints.numpy().reshape(-1).astype(np.int32) - q.spec.qmin
        return torch.from_numpy(np.bincount(codes, minlength=levels))
    counts = torch.zeros(levels, dtype=torch.int64)
    for chunk in chunks(ints):
        counts += torch.bincount(chunk.to(torch.int32) - q.spec.qmin, minlength=levels)
        progress(chunk.numel() * chunk.element_size())
    return counts * repeats(ints)


def _wide_codes(q: QTensor, progress: Progress) -> tuple[tuple[int, int] | None, int]:
    """The least and the greatest code, and how many elements sit on qmin or qmax."""
    ints, low, high, on_edge = q.ints, q.spec.qmax, q.spec.qmin, 0
    for chunk in chunks(ints):
        low, high = min(low, int(chunk.min())), max(high, int(chunk.max()))
        on_edge += int(((chunk == q.spec.qmin) | (chunk == q.spec.qmax)).sum())
        progress(chunk.numel() * chunk.element_size())
    return (low, high) if ints.numel() else None, on_edge * repeats(ints)


def value_range(tensor: Tensor) -> tuple[float, float] | None:
    """The least and the greatest value; None for an empty tensor.

    >>> value_range(torch.tensor([2, -1]))
    (-1, 2)
    """
    if not tensor.numel():
        return None
    least, greatest = torch.aminmax(tensor)
    return least.item(), greatest.item()
