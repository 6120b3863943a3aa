"""What one tensor adds to what an observer knows: pure functions on tensors.

A block is the elements that share a scale; every result has one entry for each block.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from halfstep.errors import NonFiniteError
from halfstep.numerics.blocks import block_sum


def is_finite(lo: Tensor, hi: Tensor) -> bool:
    """Whether all of both are finite, in few steps: only a finite number less itself is 0."""
    if lo.numel() == 1:
        return math.isfinite(lo.item()) and math.isfinite(hi.item())
    return torch.equal(hi - hi, lo - lo)


def count_non_finite(x: Tensor, shape: Sequence[int]) -> Tensor:
    """How many float32 values of each block are NaN or infinite; int64."""
    return block_sum((~x.float().isfinite()).to(torch.int64), shape)


def largest_magnitude(lo: Tensor, hi: Tensor) -> Tensor:
    """max(|lo|, |hi|), and 0 for a block that holds no finite value."""
    return torch.maximum(lo.abs(), hi.abs()).nan_to_num(0.0, posinf=0.0)


def moving_average(old: Tensor, new: Tensor, momentum: float) -> Tensor:
    """old + momentum * (new - old); the one that is finite where the other is not.

    A block without values so far, or in this batch, is infinite there; NaN stays. Where the
    difference is too large for float32 it is taken in float64: the average lies between both.
    """
    moved = old + momentum * (new - old)
    if not torch.compiler.is_compiling() and is_finite(moved, moved):
        return moved
    wide, to = old.double(), new.double()
    moved = torch.where(moved.isfinite(), moved, (wide + momentum * (to - wide)).float())
    return torch.where(old.isinf(), new, torch.where(new.isinf(), old, moved))


def weighted_mean(a: Tensor, b: Tensor, weight_a: Tensor, weight_b: Tensor) -> Tensor:
    """(a * weight_a + b * weight_b) / (weight_a + weight_b) in float64; infinities as above."""
    total = a.double() * weight_a + b.double() * weight_b
    mean = (total / (weight_a + weight_b)).float()
    return torch.where(a.isinf(), b, torch.where(b.isinf(), a, mean))


def non_finite_error(x: Tensor, who: str) -> NonFiniteError:
    """The error for values that have no place in a range."""
    values = x.float()
    nans, infs = int(values.isnan().sum()), int(values.isinf().sum())
    return NonFiniteError(
        f"{who} was given {nans} NaN and {infs} infinite values in {x.numel()}: clean the data, or "
        "make the observer with nonfinite='ignore' to count them and leave them out"
    )
