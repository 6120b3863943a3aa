"""How the values of a tensor, or the codes of a quantized one, are spread."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.formats.chunks import chunks, comparable, repeats
from halfstep.formats.summary import PlainSummary, QuantizedSummary


@dataclass(frozen=True, slots=True)
class Bin:
    """An interval of values or codes, and how many fall into it.

    Codes run from ``low`` to ``high``, both included; of values, ``high`` belongs to the next bin.
    """

    low: float
    high: float
    count: int


def histogram(tensor: Tensor, summary: PlainSummary | QuantizedSummary, bins: int) -> list[Bin]:
    """At most ``bins`` intervals over what occurs; empty where nothing can be counted.

    >>> from halfstep.formats.summary import summarize
    >>> x = torch.tensor([0.0, 1.0, 3.0, 4.0])
    >>> [bin.count for bin in histogram(x, summarize(x), 2)]
    [2, 2]
    """
    if isinstance(summary, QuantizedSummary):
        return _code_bins(summary, bins)
    if summary.low is None or summary.high is None:
        return []
    low, high = float(summary.low), float(summary.high)
    if low == high:
        return [Bin(low, high, tensor.numel() - summary.nan - summary.infinite)]
    counts = torch.zeros(bins, dtype=torch.float64)
    for chunk in chunks(tensor):
        counts += torch.histc(comparable(chunk).double(), bins, low, high)
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64).tolist()
    return _bins(edges[:-1], edges[1:], counts * repeats(tensor))


def _code_bins(summary: QuantizedSummary, bins: int) -> list[Bin]:
    if summary.counts is None or summary.code_range is None:
        return []
    low, high = summary.code_range
    width = -(-(high - low + 1) // bins)
    first = low - summary.qmin
    counts = summary.counts[first : first + high - low + 1]
    padded = torch.cat([counts, counts.new_zeros(-counts.numel() % width)]).view(-1, width)
    lows = range(low, high + 1, width)
    return _bins(lows, [min(start + width - 1, high) for start in lows], padded.sum(1))


def _bins(lows: Iterable[float], highs: Iterable[float], counts: Tensor) -> list[Bin]:
    places = zip(lows, highs, counts.long().tolist(), strict=True)
    return [Bin(low, high, count) for low, high, count in places]
