"""Quantiles of a histogram."""

import torch
from torch import Tensor

from halfstep.observe.bins import Bins


def values_below(bins: Bins, points: Tensor) -> Tensor:
    """How many values lie at or below each point: points (S, N) to counts (S, N), float64."""
    before = bins.counts.cumsum(-1) - bins.counts
    at = (torch.searchsorted(bins.lower, points, right=True) - 1).clamp(min=0)
    lower, width = bins.lower.gather(-1, at), (bins.upper - bins.lower).gather(-1, at)
    inside = torch.where(width > 0, (points - lower) / width, (points >= lower).double())
    return before.gather(-1, at) + bins.counts.gather(-1, at) * inside.clamp(0.0, 1.0)


def quantile(bins: Bins, share: float) -> Tensor:
    """The value below which ``share`` of the values lie, float32 (S,).

    Linear within a bin, so off by less than the width of one; exactly the least value at 0 and the
    greatest at 1.
    """
    if share in (0.0, 1.0):
        return (bins.lo if share == 0 else bins.hi).float()
    reached = bins.counts.cumsum(-1)
    target = share * bins.total.unsqueeze(-1)
    at = torch.searchsorted(reached, target).clamp(max=reached.shape[-1] - 1)
    count, lower, upper = (part.gather(-1, at) for part in (bins.counts, bins.lower, bins.upper))
    inside = (target - (reached.gather(-1, at) - count)) / count.clamp(min=1.0)
    return (lower + (upper - lower) * inside.clamp(0.0, 1.0)).squeeze(-1).float()
