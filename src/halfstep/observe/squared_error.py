"""The range that loses least: the smallest expected squared error of quantizing a histogram."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.numerics.ranges import qparams_for_range
from halfstep.observe.bins import Bins
from halfstep.spec import QSpec

CHUNK = 1 << 15  # candidates times bins looked at together: these stay in the caches
COARSE = torch.exp2(-torch.arange(0, 49, dtype=torch.float64) / 4)  # 1 down to 2^-12
FINE = 1 + torch.arange(-7, 8, dtype=torch.float64) / 64
ROUNDS = 2


def squared_error(bins: Bins, lo: Tensor, hi: Tensor, spec: QSpec) -> Tensor:
    """The expected sum of (x - x')^2 for the range [lo, hi], with x even within its bin; float64.

        E = scale^2 * sum over bins of counts * (G(u(upper)) - G(u(lower))) / (u(upper) - u(lower))
        u(x) = x / scale + zero_point - k    c = clamp(rne(u), qmin - k, qmax - k)
        G(u) = c / 12 + (u - c)^3 / 3        k = rne(zero_point)

    G is the integral of (u - c)^2, so rounding inside the range and clipping outside are both
    exact: there is no assumption of noise. lo and hi are (K, S) for K candidates; so is the result.
    """
    scale, zero_point = (q.double().unsqueeze(-1) for q in qparams_for_range(lo, hi, spec))
    nearest = zero_point.round()
    first, last = spec.qmin - nearest, spec.qmax - nearest

    def steps_and_code(edge: Tensor) -> tuple[Tensor, Tensor]:
        steps = edge / scale + (zero_point - nearest)
        return steps, steps.round().clamp(first, last)

    (a, code_a), (b, code_b) = steps_and_code(bins.lower), steps_and_code(bins.upper)
    off_a, off_b, width = a - code_a, b - code_b, b - a
    integral = (code_b - code_a) / 12 + (off_b**3 - off_a**3) / 3
    mean = torch.where(width > 0, integral / width, off_a.square())
    return (bins.counts * mean).sum(-1) * scale.squeeze(-1).square()


def least_squared_error(coarse: Bins, fine: Bins, spec: QSpec) -> tuple[Tensor, Tensor]:
    """(lo, hi), each (S,) float32, with the least ``squared_error`` that a search finds.

    First both ends are capped at one magnitude, from the largest down to 2^-12 of it in steps of
    2^(1/4), then each end alone shrinks so, on coarse bins; then the same in steps of 1/64, up or
    down, on fine ones. A symmetric format has one end.

    Source: Max, "Quantizing for Minimum Distortion", IRE Transactions on Information Theory 1960;
    for neural networks, Nagel et al., "A White Paper on Neural Network Quantization", 2021,
    section 3.1.
    """
    lo, hi = coarse.lo, coarse.hi
    if not spec.float_zero_point:
        lo, hi = lo.clamp(max=0.0), hi.clamp(min=0.0)
    # A float zero point can shift the grid, so that range shrinks towards its middle.
    centre = (lo + hi) / 2 if spec.float_zero_point else torch.zeros_like(lo)
    search = _Search(spec, centre, widest=(centre - lo, hi - centre))
    ends = search.widest
    for bins, factors in ((coarse, COARSE), (fine, FINE)):
        ends = search.improve(bins, ends, factors.to(lo.device).unsqueeze(-1))
    return (centre - ends[0]).float(), (centre + ends[1]).float()


Ends = tuple[Tensor, Tensor]  # how far the range reaches to the left and to the right of its centre


@dataclass(frozen=True, slots=True)
class _Search:
    """A search over ranges [centre - left, centre + right], never wider than ``widest``."""

    spec: QSpec
    centre: Tensor
    widest: Ends

    def improve(self, bins: Bins, ends: Ends, factors: Tensor) -> Ends:
        """The best ends among those that the factors (K, 1) make of ``ends``."""
        cap = torch.maximum(*ends) * factors
        ends = self._best(bins, cap, cap)
        if self.spec.symmetric or bool(((self.widest[0] == 0) | (self.widest[1] == 0)).all()):
            return ends
        for _ in range(ROUNDS):
            ends = self._best(bins, ends[0] * factors, ends[1].expand_as(factors * ends[1]))
            ends = self._best(bins, ends[0].expand_as(factors * ends[0]), ends[1] * factors)
        return ends

    def _best(self, bins: Bins, left: Tensor, right: Tensor) -> Ends:
        """The best of K candidates (K, S), the first where several are."""
        left, right = left.minimum(self.widest[0]), right.minimum(self.widest[1])
        size = max(1, CHUNK // max(bins.counts.numel(), 1))
        lows, highs = (self.centre - left).float(), (self.centre + right).float()
        errors = [
            squared_error(bins, low, high, self.spec)
            for low, high in zip(lows.split(size), highs.split(size), strict=True)
        ]
        best = torch.cat(errors).argmin(0, keepdim=True)
        return left.gather(0, best).squeeze(0), right.gather(0, best).squeeze(0)
