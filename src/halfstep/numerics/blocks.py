"""Reductions over the elements that share a scale, in plain PyTorch."""

from collections.abc import Sequence

import torch
from torch import Tensor


def block_view(x: Tensor, shape: Sequence[int]) -> Tensor:
    """View x (d0, d1, ...) as (s0, d0 / s0, s1, d1 / s1, ...), for a scale (s0, s1, ...)."""
    sizes = [part for d, s in zip(x.shape, shape, strict=True) for part in (s, d // s if s else 0)]
    return x.reshape(sizes)


def block_dims(ndim: int) -> list[int]:
    """The dimensions of a block view that share a scale."""
    return list(range(1, 2 * ndim, 2))


def block_sum(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The sum over each block; 0 for an empty one."""
    return block_view(x, shape).sum(block_dims(x.ndim)) if x.ndim else x.clone()


def min_max(x: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The least and greatest value of each block in float32; NaN propagates; 0 for an empty one.

    -0.0 counts as 0.0, so that the result does not depend on the order of the elements.
    """
    if x.numel() == 0:
        empty = torch.zeros(list(shape), dtype=torch.float32, device=x.device)
        return empty, empty.clone()
    blocks, dims = block_view(x.float(), shape), block_dims(x.ndim)
    return blocks.amin(dims) + 0.0, blocks.amax(dims) + 0.0
