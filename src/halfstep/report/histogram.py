"""A histogram of values that come one batch after the other, whose range is not known before."""

import torch
from torch import Tensor

from halfstep.report.records import Histogram

BINS = 128


class GrowingHistogram:
    """Counts in ``BINS`` bins of one width, over the range of the first values.

    When others lie outside, neighbors become one, so that the bins reach twice as far: no value is
    counted anew, and the counts are those of all values in the final bins.

    >>> import torch
    >>> from halfstep.report.histogram import GrowingHistogram
    >>> histogram = GrowingHistogram()
    >>> histogram.add(torch.tensor([0.0, 1.0]), 0.0, 1.0)
    >>> histogram.add(torch.tensor([-1.5]), -1.5, -1.5)
    >>> found = histogram.record()
    >>> found.low, found.high, sum(found.counts)
    (-1.5, 1.0, 3)
    """

    def __init__(self) -> None:
        self._low = self._width = 0.0
        self._counts = torch.zeros(BINS, dtype=torch.int64)

    def add(self, x: Tensor, low: float, high: float) -> None:
        """Count the finite values of x, which lie between ``low`` and ``high``."""
        if x.numel() == 0:
            return
        if not self._width:
            span = high - low or abs(high) or 1.0
            self._low, self._width = low, span / BINS
        while low < self._low:
            self._grow(downward=True)
        while high > self._high:
            self._grow(downward=False)
        values = x.to(torch.float32)
        self._counts += torch.histc(values, BINS, self._low, self._high).cpu().long()

    @property
    def _high(self) -> float:
        return self._low + BINS * self._width

    def _grow(self, *, downward: bool) -> None:
        """Twice the width; the bins that are there end up in one half."""
        merged = self._counts.reshape(-1, 2).sum(1)
        empty = torch.zeros_like(merged)
        if downward:
            self._low -= BINS * self._width
        self._counts = torch.cat([empty, merged] if downward else [merged, empty])
        self._width *= 2

    def record(self) -> Histogram:
        """The counts so far; bins without a value at either end are left out."""
        filled = self._counts.nonzero().flatten()
        if not filled.numel():
            return Histogram(0.0, 0.0, ())
        first, last = int(filled[0]), int(filled[-1]) + 1
        low = self._low + first * self._width
        high = self._low + last * self._width
        return Histogram(low, high, tuple(self._counts[first:last].tolist()))
