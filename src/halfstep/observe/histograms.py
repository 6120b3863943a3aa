"""Observers that choose their range from the distribution of the values."""

import math
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import histogram, ops
from halfstep.observe.batch import largest_magnitude
from halfstep.observe.bins import Bins, make_bins, make_coarse_bins, make_magnitude_bins
from halfstep.observe.entropy import least_divergence
from halfstep.observe.observer import Observer
from halfstep.observe.percentile import quantile
from halfstep.observe.settings import check_share
from halfstep.observe.squared_error import least_squared_error
from halfstep.spec import QDType, QSpec

# 128 bins an octave for one scale, 16 where there are many: 64 or 8 KB for each scale.
ONE_SCALE, MANY_SCALES = 7, 4
MOST_BYTES = 1 << 30


class GridObserver(Observer):
    """The base of the observers that count values on the fixed grid of ``numerics.histogram``.

        counts[..., b] = how many values lie in bin b    top = the window's highest octave

    Bins do not depend on the data, so counts of parts add up to the counts of the whole, in every
    bit, and one pass needs 64 KB for a single scale and 8 KB each for many, however much data
    comes. Values more than 32 octaves below the largest one count as 0. The least and the greatest
    value are kept exactly.

    Raises ``ArgumentError`` for so many scales that the counts would fill more than 1 GiB.
    """

    counts: Tensor
    top: Tensor
    _scaled = ("min_val", "max_val", "counts", "top")

    def __init__(self, spec: QSpec | QDType | torch.dtype, *, nonfinite: str = "raise") -> None:
        super().__init__(spec, nonfinite=nonfinite)
        self.register_buffer("counts", torch.empty(0, dtype=torch.int64))
        self.register_buffer("top", torch.empty(0, dtype=torch.int32))

    def _bins(self) -> Bins:
        return make_bins(self.counts, self.top, self.min_val, self.max_val)

    def _magnitude_bins(self) -> Bins:
        return make_magnitude_bins(self.counts, self.top, self.min_val, self.max_val)

    def _shaped(self, lo: Tensor, hi: Tensor) -> tuple[Tensor, Tensor]:
        return lo.reshape(self.min_val.shape), hi.reshape(self.min_val.shape)

    def _start(self, shape: tuple[int, ...]) -> None:
        scales = math.prod(shape)
        bins = histogram.bins_for(ONE_SCALE if scales == 1 else MANY_SCALES)
        if scales * bins * 8 > MOST_BYTES:
            raise ArgumentError(
                f"{self._who()} would keep {scales} histograms, {scales * bins * 8 >> 30} GiB: use "
                "MinMaxObserver, or a granularity with fewer scales"
            )
        super()._start(shape)
        self.resize("counts", (*shape, bins)).zero_()
        self.resize("top", shape).fill_(histogram.OCTAVES)

    def _take(self, x: Tensor, lo: Tensor, hi: Tensor, bad: Tensor | None) -> None:
        self._widen(lo, hi)
        self._raise_to(histogram.top_octave(largest_magnitude(lo, hi)))
        if bad is not None:
            values = x.float()
            x = values.masked_fill(~values.isfinite(), 0.0)
            self.counts[..., self.counts.shape[-1] // 2] -= bad
        ops.histogram_(self.counts, x, self.top)

    def _raise_to(self, top: Tensor) -> None:
        """Move the window up to hold the octave ``top``."""
        top = torch.maximum(top, self.top)
        if torch.compiler.is_compiling() or not torch.equal(top, self.top):
            self.counts.copy_(histogram.move_window(self.counts, self.top, top))
            self.top.copy_(top)

    def _merge(self, other: "GridObserver") -> None:
        self._widen(other.min_val, other.max_val)
        self._raise_to(other.top)
        self.counts += histogram.move_window(other.counts, other.top, self.top)


class HistogramObserver(GridObserver):
    """The range with the least squared error of quantizing the values seen.

        (lo, hi) = argmin sum (x - x')^2    x' = x quantized with the qparams of [lo, hi]

    Rounding inside the range and clipping outside are weighed exactly, with the values even within
    their bins of 1/128 octave (1/16 for many scales); see ``observe.squared_error``. The state does
    not depend on batch sizes or order, in any bit. Raises as ``Observer`` does.

    Source: Max, "Quantizing for Minimum Distortion", 1960; Nagel et al., "A White Paper on Neural
    Network Quantization", 2021.

    >>> import halfstep as hs, torch
    >>> observer = hs.HistogramObserver(hs.QSpec(hs.int4, symmetric=True))
    >>> _ = observer(torch.linspace(-1, 1, 1001)), observer(torch.tensor([1.5]))
    >>> lo, hi = observer.range()
    >>> round(hi.item(), 1), observer.max_val.item()
    (0.9, 1.5)
    """

    def _find_range(self) -> tuple[Tensor, Tensor]:
        state = self.counts, self.top, self.min_val, self.max_val
        found = least_squared_error(make_coarse_bins(*state), make_bins(*state), self.spec)
        return self._shaped(*found)


class PercentileObserver(GridObserver):
    """The range that holds ``percentile`` percent of the values seen.

        affine:     lo, hi = quantiles (100 - p) / 200 and 1 - (100 - p) / 200 of x
        symmetric:  hi = -lo = quantile p / 100 of |x|

    Exact to the width of a bin (1/128 of an octave, 1/16 for many scales), and exactly the least
    and the greatest value at 100. The state does not depend on batch sizes or order, in any bit.
    Raises ``ArgumentError`` for a percentile outside (0, 100], ``ArgumentTypeError`` for what is no
    number, and as ``Observer`` does.

    Source: Li et al., "Fully Quantized Network for Object Detection", CVPR 2019.

    >>> import halfstep as hs, torch
    >>> observer = hs.PercentileObserver(hs.uint8, percentile=99.0)
    >>> _ = observer(torch.arange(10_001.0))
    >>> [round(end.item() / 10_001, 3) for end in observer.range()]
    [0.005, 0.995]
    """

    def __init__(
        self,
        spec: QSpec | QDType | torch.dtype,
        *,
        percentile: float = 99.99,
        nonfinite: str = "raise",
    ) -> None:
        super().__init__(spec, nonfinite=nonfinite)
        self.percentile = check_share(percentile, "percentile", 100, "a share of the values")

    @property
    def settings(self) -> tuple[Any, ...]:
        """What must be equal in observers that are merged."""
        return (self.spec, self.percentile)

    def _find_range(self) -> tuple[Tensor, Tensor]:
        if self.spec.symmetric:
            hi = quantile(self._magnitude_bins(), self.percentile / 100)
            return self._shaped(-hi, hi)
        tail = (100 - self.percentile) / 200
        bins = self._bins()
        return self._shaped(quantile(bins, tail), quantile(bins, 1 - tail))


class EntropyObserver(GridObserver):
    """The range whose quantized distribution tells most about the values seen (KL divergence).

        (lo, hi) = argmin KL(P || Q)

    P is the clipped distribution on fine cells, Q the same merged to as many groups as the format
    has codes. Symmetric formats look at |x| and half of the codes, others at x with both ends
    moving together. The range always holds 0, which these formats represent exactly, and zeros are
    left out. Only the float-zero-point form has no exact 0: there zeros count as any value, and the
    range, which need not hold 0, shrinks towards the middle of the values. See
    ``observe.entropy``. The state does not depend on batch sizes or order, in any bit. Raises as
    ``Observer`` does.

    Source: Migacz, "8-bit Inference with TensorRT", GTC 2017.

    >>> import halfstep as hs, torch
    >>> observer = hs.EntropyObserver(hs.QSpec(hs.int8, symmetric=True))
    >>> bell = torch.distributions.Normal(0, 1).icdf(torch.linspace(0.001, 0.999, 100_001))
    >>> _ = observer(bell), observer(torch.tensor([90.0]))
    >>> lo, hi = observer.range()
    >>> round(hi.item(), 1), observer.max_val.item()
    (5.6, 90.0)
    """

    def _find_range(self) -> tuple[Tensor, Tensor]:
        if self.spec.symmetric:
            _, hi = least_divergence(self._magnitude_bins(), self.spec.qmax + 1)
            return self._shaped(-hi, hi)
        levels, exact = self.spec.qmax - self.spec.qmin + 1, not self.spec.float_zero_point
        return self._shaped(*least_divergence(self._bins(), levels, holds_zero=exact))
