"""The range that keeps most information: the least Kullback-Leibler divergence."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.observe.bins import Bins
from halfstep.observe.percentile import values_below

LEAST_CELLS = 2048
CELLS_PER_LEVEL = 16
MOST_LEVELS = 1 << 12  # beyond, clipping never pays: the full range is kept
CANDIDATES = 128
CHUNK = 1 << 18  # candidates times levels times scales that are looked at together
LEAST_Q = 1e-4  # of what is kept: a clipped value in an empty cell is not infinitely surprising


@dataclass(frozen=True, slots=True)
class Cells:
    """A histogram on N cells of equal width, (S, N) float64, as sums of the cells before each."""

    counts: Tensor
    below: Tensor  # (S, N + 1): sum of counts
    filled: Tensor  # (S, N + 1): number of cells that are not empty
    entropy: Tensor  # (S, N + 1): sum of counts * ln(counts)


def without_zeros(bins: Bins) -> Bins:
    """The bins less the zeros, which say nothing about ranges that all hold them exactly."""
    is_zero = (bins.lower == 0) & (bins.upper == 0)
    return Bins(bins.counts.masked_fill(is_zero, 0.0), bins.lower, bins.upper)


def make_cells(bins: Bins, points: Tensor) -> Cells:
    """The values between each point and the next, points (S, N + 1)."""
    # Less than this is what float64 leaves of a difference of equal sums.
    least = bins.total.unsqueeze(-1) * 2.0**-40
    below = values_below(bins, points)
    below[:, 0] = 0.0
    counts = below.diff(dim=-1)
    counts = counts.masked_fill(counts <= least, 0.0)
    sums = (_before(part) for part in (counts, (counts > 0).double(), torch.xlogy(counts, counts)))
    return Cells(counts, *sums)


def _before(cells: Tensor) -> Tensor:
    return torch.nn.functional.pad(cells.cumsum(-1), (1, 0))


def divergence(cells: Cells, start: Tensor, stop: Tensor, levels: int) -> Tensor:
    """KL(P || Q) of keeping the cells from ``start`` up to ``stop``, both (K, S); float64 (K, S).

    P: the counts kept, with what lies outside added to the first and the last cell. Q: the counts
    kept, merged to ``levels`` groups and spread evenly over the cells of a group in which P is not
    0; both divided by their sums. Where only Q is 0 it counts as 10^-4.
    """

    def take(part: Tensor, at: Tensor) -> Tensor:
        return part.expand(at.shape[0], -1, -1).gather(-1, at)

    first, last = start.unsqueeze(-1), stop.unsqueeze(-1) - 1
    group = torch.arange(levels + 1, device=start.device)
    bounds = first + group * (last + 1 - first) // levels
    mass, filled = (take(part, bounds).diff(dim=-1) for part in (cells.below, cells.filled))
    total = cells.below[:, -1:]
    under, over = take(cells.below, first), total - take(cells.below, last + 1)
    inside = total - under - over
    entropy = take(cells.entropy, last + 1) - take(cells.entropy, first)
    for end, extra, at in ((first, under, 0), (last, over, -1)):
        count = take(cells.counts, end)
        entropy += torch.xlogy(count + extra, count + extra) - torch.xlogy(count, count)
        filled[..., at] += ((extra > 0) & (count == 0)).squeeze(-1)
    level = torch.where(mass > 0, mass / filled.clamp(min=1.0), LEAST_Q * inside).log()
    cross = (mass * level).sum(-1, keepdim=True)
    cross += under * level[..., :1] + over * level[..., -1:]
    # sum p ln(p / q) with p = P / total and q = Q / inside
    kl = (entropy - cross) / total - total.log() + inside.log()
    return torch.where(inside > 0, kl, torch.inf).squeeze(-1)


def least_divergence(bins: Bins, levels: int, *, holds_zero: bool = True) -> tuple[Tensor, Tensor]:
    """(lo, hi), float32 (S,), of the range whose ``divergence`` is least.

    The range holds 0, both ends are capped at one magnitude, and it keeps at least ``levels`` of
    the cells. More than 4096 levels keep the full range. Without ``holds_zero`` both ends come
    equally far towards the middle of the values, wherever 0 lies.

    Source: Migacz, "8-bit Inference with TensorRT", GTC 2017.
    """
    lo, hi = bins.lo, bins.hi
    if holds_zero:
        lo, hi, bins = lo.clamp(max=0.0), hi.clamp(min=0.0), without_zeros(bins)
    if levels > MOST_LEVELS:
        return lo.float(), hi.float()
    count = max(LEAST_CELLS, CELLS_PER_LEVEL * levels)
    share = torch.arange(count + 1, dtype=torch.float64, device=lo.device) / count
    points = lo.unsqueeze(-1) * (1 - share) + hi.unsqueeze(-1) * share
    span = torch.where(hi > lo, hi - lo, 1.0)
    share_below = -lo / span if holds_zero else torch.full_like(lo, 0.5)
    start, stop = _candidates((share_below * count).round().long(), count)
    size = max(1, CHUNK // (levels * lo.numel()))
    cells = make_cells(bins, points)
    divergences = [
        divergence(cells, first, last, levels)
        for first, last in zip(start.split(size), stop.split(size), strict=True)
    ]
    kl = torch.cat(divergences).masked_fill(stop - start < levels, torch.inf)
    # The widest of the best: candidates shrink.
    order = torch.arange(CANDIDATES, device=lo.device).unsqueeze(-1)
    best = torch.where(kl == kl.amin(0), order, CANDIDATES - 1).amin(0, keepdim=True)
    ends = (points.gather(-1, at.gather(0, best).T).squeeze(-1).float() for at in (start, stop))
    return next(ends), next(ends)


def _candidates(centre: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """First and last cells (K, S) around a cell (S,), from all ``count`` cells downwards."""
    caps = torch.arange(CANDIDATES, 0, -1, device=centre.device).unsqueeze(-1)
    cap = torch.maximum(centre, count - centre) * caps // CANDIDATES
    return (centre - cap).clamp(min=0), (centre + cap).clamp(max=count)
