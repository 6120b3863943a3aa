"""The range that loses least: the smallest expected squared error of quantizing a histogram."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.numerics.ranges import qparams_for_range
from halfstep.observe.bins import Bins, Ends
from halfstep.spec import QSpec

CHUNK = 1 << 15  # candidates times bins looked at together: in the caches, too few for threads
SCALES_BINS = 1 << 11  # and scales times bins
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

    def off_and_code(edge: Tensor) -> tuple[Tensor, Tensor]:
        steps = edge / scale
        if spec.float_zero_point:
            steps += zero_point - nearest
        code = steps.round().clamp_(first, last)
        return steps.sub_(code), code

    (off_a, code_a), (off_b, code_b) = off_and_code(bins.lower), off_and_code(bins.upper)
    square = off_a.square()
    integral = off_b.pow_(3).sub_(off_a.mul_(square)).add_(code_b.sub_(code_a), alpha=0.25)
    # A bin of no width is a point. The others' weight is counts / (3 * (u(upper) - u(lower))).
    width = bins.upper - bins.lower
    spread = torch.where(width > 0, bins.counts / (3 * width), 0.0)
    errors = integral.mul_(spread).mul_(scale)
    errors.addcmul_(square, bins.counts.masked_fill(width > 0, 0.0))
    return errors.sum(-1) * scale.squeeze(-1).square()


def least_squared_error(coarse: Bins, fine: Bins, spec: QSpec) -> tuple[Tensor, Tensor]:
    """(lo, hi), each (S,) float32, with the least ``squared_error`` that a search finds.

    First both ends are capped at one magnitude, from the largest down to 2^-12 of it in steps of
    2^(1/4), then each end alone shrinks so, on coarse bins; then the same in steps of 1/64, up or
    down, on fine ones. The full range stays where that finds nothing better. A symmetric format has
    one end.

    Source: Max, "Quantizing for Minimum Distortion", IRE Transactions on Information Theory 1960;
    for neural networks, Nagel et al., "A White Paper on Neural Network Quantization", 2021,
    section 3.1.
    """
    rows = max(1, SCALES_BINS // fine.counts.shape[-1])
    parts = zip(coarse.split(rows), fine.split(rows), strict=True)
    lows, highs = zip(*(_least(*part, spec) for part in parts), strict=True)
    return torch.cat(lows), torch.cat(highs)


def _least(coarse: Bins, fine: Bins, spec: QSpec) -> Ends:
    """``least_squared_error`` for as many scales as the caches hold."""
    lo, hi = fine.lo, fine.hi
    if not spec.float_zero_point:
        lo, hi = lo.clamp(max=0.0), hi.clamp(min=0.0)
    # A float zero point can shift the grid, so that range shrinks towards its middle.
    centre = (lo + hi) / 2 if spec.float_zero_point else torch.zeros_like(lo)
    widest = centre - lo, hi - centre
    search = _Search(spec, centre, widest)
    ends = widest
    for bins, factors in ((coarse, COARSE), (fine, FINE)):
        ends = search.improve(bins, ends, factors.to(lo.device).unsqueeze(-1))
    full_or_found = (torch.stack(pair) for pair in zip(widest, ends, strict=True))
    left, right = search.best(fine, *full_or_found)
    return (centre - left).float(), (centre + right).float()


@dataclass(frozen=True, slots=True)
class _Search:
    """A search over ranges [centre - left, centre + right], never wider than ``widest``."""

    spec: QSpec
    centre: Tensor
    widest: Ends

    def improve(self, bins: Bins, ends: Ends, factors: Tensor) -> Ends:
        """The best ends among those that the factors (K, 1) make of ``ends``."""
        cap = torch.maximum(*ends) * factors
        capped = left, right = self.best(bins, cap, cap)
        one_end = (self.widest[0] == 0) | (self.widest[1] == 0)
        if self.spec.symmetric or bool(one_end.all()):
            return capped
        for _ in range(ROUNDS):
            left, right = self.best(bins, left * factors, right.expand(len(factors), -1))
            left, right = self.best(bins, left.expand(len(factors), -1), right * factors)
        # Scales with one end are done, or they would depend on whether others have two.
        return torch.where(one_end, capped[0], left), torch.where(one_end, capped[1], right)

    def best(self, bins: Bins, left: Tensor, right: Tensor) -> Ends:
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
