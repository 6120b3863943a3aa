"""The bins of a histogram as what they stand for: values spread evenly between two edges."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.numerics.histogram import bin_edges

MERGED = 8


@dataclass(frozen=True, slots=True)
class Bins:
    """``counts`` values between ``lower`` and ``upper``; float64 of shape (S, B), S scales.

    Bins ascend, and a bin of no width is one value: 0, or what all values of a scale are equal to.
    """

    counts: Tensor
    lower: Tensor
    upper: Tensor

    @property
    def lo(self) -> Tensor:
        """The least value of each scale (S,)."""
        return self.lower[:, 0]

    @property
    def hi(self) -> Tensor:
        """The greatest value of each scale (S,)."""
        return self.upper[:, -1]

    @property
    def total(self) -> Tensor:
        """How many values each scale has (S,)."""
        return self.counts.sum(-1)


def make_bins(counts: Tensor, top: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """The bins of a fixed-grid histogram whose values lie exactly in [lo, hi]."""
    counts = counts.flatten(0, -2)
    lower, upper = bin_edges(top.flatten(), counts.shape[-1])
    return _within(counts, lower, upper, lo, hi)


def make_coarse_bins(counts: Tensor, top: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """The same with ``MERGED`` neighbours of one octave in one bin."""
    counts = counts.flatten(0, -2)
    half = counts.shape[-1] // 2
    lower, upper = bin_edges(top.flatten(), counts.shape[-1])
    sides = slice(0, half), slice(half, half + 1), slice(half + 1, None)
    steps = MERGED, 1, MERGED
    merged = [
        [edge[:, side].unflatten(1, (-1, step)) for side, step in zip(sides, steps, strict=True)]
        for edge in (counts, lower, upper)
    ]
    return _within(
        torch.cat([part.sum(-1) for part in merged[0]], 1),
        torch.cat([part[..., 0] for part in merged[1]], 1),
        torch.cat([part[..., -1] for part in merged[2]], 1),
        lo,
        hi,
    )


def make_magnitude_bins(counts: Tensor, top: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """The same of |x|, for formats whose range is symmetric."""
    counts = counts.flatten(0, -2)
    half = counts.shape[-1] // 2
    lower, upper = (edge[:, half:] for edge in bin_edges(top.flatten(), counts.shape[-1]))
    folded = counts[:, half:].clone()
    folded[:, 1:] += counts[:, :half].flip(-1)
    least = torch.maximum(lo, -hi).clamp(min=0.0)
    return _within(folded, lower, upper, least, torch.maximum(-lo, hi))


def _within(counts: Tensor, lower: Tensor, upper: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """Leave out the bins that are empty everywhere, and cut the outer ones at lo and hi."""
    unseen = (lo > hi).flatten().unsqueeze(-1)
    lo, hi = (end.double().flatten().unsqueeze(-1).masked_fill(unseen, 0.0) for end in (lo, hi))
    used = counts.any(0).nonzero().flatten()
    edges = (edge[:, used].maximum(lo).minimum(hi) for edge in (lower, upper))
    return Bins(counts[:, used].double(), *edges)
