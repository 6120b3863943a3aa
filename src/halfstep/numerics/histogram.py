"""Counts on a fixed grid: the same bins for every data, so that counts add without error.

A float32 falls into a bin by its leading bits: sign, exponent, and the top ``m`` of the mantissa,
which cuts each octave [2^e, 2^(e+1)) into 2^m bins of equal width. Only the ``OCTAVES`` octaves
below the largest magnitude are told apart; whatever is smaller counts as 0. The largest magnitude
never shrinks, so the final counts depend neither on the order of the values nor on how they were
cut into batches. With half = OCTAVES * 2^m there are 2 * half + 1 bins, in the order of values:

    place = sign(x) * clamp(top m + 8 bits of |x| - base, 0, half)      column = half + place
    base  = (top - OCTAVES + 1) * 2^m - 1

``counts`` has the shape of ``scale`` with the bins as one more dimension, ``top`` (the biased
exponent of the highest octave) has the shape of ``scale``.
"""

import torch
from torch import Tensor

from halfstep.numerics.affine import spread

OCTAVES = 32
MANTISSA_BITS = 23


def bins_for(mantissa_bits: int) -> int:
    """How many bins ``mantissa_bits`` make: 2 * OCTAVES * 2^m + 1.

    >>> bins_for(7)
    8193
    """
    return 2 * (OCTAVES << mantissa_bits) + 1


def mantissa_bits_of(bins: int) -> int:
    """The ``mantissa_bits`` that make so many bins."""
    return (bins // (2 * OCTAVES)).bit_length() - 1


def top_octave(magnitude: Tensor) -> Tensor:
    """The biased exponent of a finite float32 magnitude, at least ``OCTAVES``; int32.

    The window never reaches below the normal numbers, so subnormals count as 0.
    """
    return (magnitude.view(torch.int32) >> MANTISSA_BITS).clamp(min=OCTAVES)


def window_base(top: Tensor, bins: int) -> Tensor:
    """The leading bits just below the lowest bin that is not the one for zero; int32."""
    return ((top - OCTAVES + 1) << mantissa_bits_of(bins)) - 1


def histogram_(counts: Tensor, x: Tensor, top: Tensor) -> None:
    """Add the finite values of x to ``counts`` (int64) in the window ``top`` (int32).

    ``top`` must be at least the octave of every value of x.
    """
    bins = counts.shape[-1]
    half, bits = bins // 2, mantissa_bits_of(bins)
    base = window_base(top, bins)
    pattern = x.float().contiguous().view(torch.int32)
    magnitude = (pattern & 0x7FFFFFFF) >> (MANTISSA_BITS - bits)
    place = (magnitude - spread(base, x.shape)).clamp(0, half)
    column = half + torch.where(pattern < 0, -place, place)
    row = torch.arange(top.numel(), device=x.device).reshape(top.shape)
    flat = (spread(row, x.shape) * bins + column).flatten()
    counts.add_(torch.bincount(flat, minlength=counts.numel()).reshape(counts.shape))


def move_window(counts: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """The counts of the window ``old`` in the window ``new``, at or above it.

    What falls out of the window at its lower end joins the values that count as 0.
    """
    bins = counts.shape[-1]
    half = bins // 2
    place = torch.arange(-half, half + 1, device=counts.device)
    fallen = ((new - old) << mantissa_bits_of(bins)).unsqueeze(-1)
    column = half + place.sign() * (place.abs() - fallen).clamp(min=0)
    return torch.zeros_like(counts).scatter_add(-1, column.expand_as(counts), counts)


def bin_edges(top: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """The least and the greatest value of each bin, float64, in the shape of ``counts``.

    The bin in the middle is the point 0, since that is what its values count as.
    """
    shift = MANTISSA_BITS - mantissa_bits_of(bins)
    base = window_base(top, bins).unsqueeze(-1)
    place = torch.arange(1, bins // 2 + 1, device=top.device, dtype=torch.int32)
    inner = _float_of((base + place) << shift)
    outer = _float_of((base + place + 1) << shift)
    zero = inner.new_zeros((*inner.shape[:-1], 1))
    lower = torch.cat([-outer.flip(-1), zero, inner], -1)
    upper = torch.cat([-inner.flip(-1), zero, outer], -1)
    return lower, upper


def _float_of(pattern: Tensor) -> Tensor:
    """Float32 bit patterns as float64; the one of infinity is 2^128, where the last bin ends."""
    return pattern.view(torch.float32).double().nan_to_num(posinf=2.0**128)
