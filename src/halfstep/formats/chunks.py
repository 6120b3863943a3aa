"""The stored elements of a tensor in flat pieces, so that a mapped file is never all in memory."""

import math
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

CHUNK: Final = 1 << 20  # elements


def chunks(tensor: Tensor) -> Iterator[Tensor]:
    """The stored elements, flat, in pieces of at most ``CHUNK``; the order is the memory's.

    A dimension that only repeats its elements (stride 0) is passed over once: see ``repeats``.
    """
    if tensor.numel() == 0:
        return
    for dim in range(tensor.ndim):
        if tensor.stride(dim) == 0:
            tensor = tensor.narrow(dim, 0, 1)
    strides = tensor.stride()
    order = sorted(range(tensor.ndim), key=lambda dim: -strides[dim])
    yield from _pieces(tensor.permute(order))


def repeats(tensor: Tensor) -> int:
    """How often the tensor shows each element that ``chunks`` gives.

    >>> repeats(torch.ones(1, 2).expand(3, 2))
    3
    """
    return math.prod(n for n, step in zip(tensor.shape, tensor.stride(), strict=True) if step == 0)


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.is_contiguous():
        yield from tensor.view(-1).split(CHUNK)
    elif tensor.numel() <= CHUNK:
        yield tensor.reshape(-1)
    else:
        for part in tensor.unbind(0):
            yield from _pieces(part)


def comparable(chunk: Tensor) -> Tensor:
    """The values in a dtype for which torch has comparisons."""
    return chunk.to(_WIDER[chunk.dtype]) if chunk.dtype in _WIDER else chunk


_WIDER: Final = {
    torch.bool: torch.uint8,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.float64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.float8_e8m0fnu: torch.float32,
}
