"""The bins of a histogram as what they stand for: values spread evenly between two edges."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.numerics.histogram import MANTISSA_BITS, bin_edges

MERGED = 8
ONE = 127  # the biased exponent of 1.0

Ends = tuple[Tensor, Tensor]  # a lower and an upper one


@dataclass(frozen=True, slots=True)
class Bins:
    """``counts`` values between ``lower`` and ``upper``; float64 of shape (S, B), S scales.

    Bins ascend, and a bin of no width is one value: 0, or what all values of a scale are equal to.
    Only bins that hold values are here, so that S scales of N values each need at most N columns.
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

    def split(self, rows: int) -> list["Bins"]:
        """The bins of ``rows`` scales each, the last of what is left."""
        parts = (part.split(rows) for part in (self.counts, self.lower, self.upper))
        return [Bins(*part) for part in zip(*parts, strict=True)]


def make_bins(counts: Tensor, top: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """The bins of a fixed-grid histogram whose values lie exactly in [lo, hi]."""
    counts = counts.reshape(-1, counts.shape[-1])
    return _filled(counts, _grid(counts), top, (lo, hi))


def make_coarse_bins(counts: Tensor, top: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """The same with ``MERGED`` neighbours of one octave in one bin."""
    counts = counts.reshape(-1, counts.shape[-1])
    half = counts.shape[-1] // 2
    sides = (slice(0, half), MERGED), (slice(half, half + 1), 1), (slice(half + 1, None), MERGED)
    merged, lower, upper = (
        [part[..., side].unflatten(-1, (-1, size)) for side, size in sides]
        for part in (counts, *_grid(counts))
    )
    edges = (
        torch.cat([part[..., 0] for part in lower]),
        torch.cat([part[..., -1] for part in upper]),
    )
    return _filled(torch.cat([part.sum(-1) for part in merged], -1), edges, top, (lo, hi))


def make_magnitude_bins(counts: Tensor, top: Tensor, lo: Tensor, hi: Tensor) -> Bins:
    """The same as ``make_bins`` of |x|, for formats whose range is symmetric."""
    counts = counts.reshape(-1, counts.shape[-1])
    half = counts.shape[-1] // 2
    lower, upper = (edge[half:] for edge in _grid(counts))
    folded = counts[:, half:].clone()
    folded[:, 1:] += counts[:, :half].flip(-1)
    least = torch.maximum(lo, -hi).clamp(min=0.0)
    return _filled(folded, (lower, upper), top, (least, torch.maximum(-lo, hi)))


def _grid(counts: Tensor) -> Ends:
    """The edges (B,) of the bins in the window of 1.0; in others they are a power of 2 larger."""
    return bin_edges(torch.tensor(ONE, dtype=torch.int32, device=counts.device), counts.shape[-1])


def _filled(counts: Tensor, grid: Ends, top: Tensor, ends: Ends) -> Bins:
    """The bins that hold values, the outer ones cut at the least and the greatest value.

    Scales with fewer bins than others get empty ones of no width at their greatest value.
    """
    row, column = counts.nonzero(as_tuple=True)
    filled = torch.bincount(row, minlength=counts.shape[0])
    shape = counts.shape[0], max(int(filled.max()), 1) if filled.numel() else 1
    place = torch.arange(row.numel(), device=row.device) - (filled.cumsum(0) - filled)[row]
    at = row * shape[1] + place
    unit = (top.flatten() << MANTISSA_BITS).view(torch.float32).double()[row]

    def compact(values: Tensor, empty: float) -> Tensor:
        return values.new_full(shape, empty).flatten().index_copy_(0, at, values).view(shape)

    unseen = ends[0] > ends[1]
    lo, hi = (end.double().masked_fill(unseen, 0.0).reshape(-1, 1) for end in ends)
    lower, upper = (
        compact(edge[column] * unit, torch.inf).maximum(lo).minimum(hi) for edge in grid
    )
    return Bins(compact(counts[row, column].double(), 0.0), lower, upper)
