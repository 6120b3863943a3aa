"""Kernels for means and maxima."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from halfstep.engines.race import Race
from halfstep.engines.terms import codes_of, finish_of
from halfstep.graph.frozen import Bound, Lookup
from halfstep.numerics.native_codes import (
    CHANNELS_LAST,
    Codes,
    Mean,
    Pool,
    Windows,
    adaptive_windows,
    is_served,
    sliding_windows,
)

_MOST_SUMMED = 2**31 // 255 - 1  # codes whose sum 32 bits hold


def _is_served(*edges: Any) -> bool:
    return is_served(*(edge.storage for edge in edges if edge is not None))


def _sliding(
    args: Sequence[Sequence[int]], *, ceil: bool, padded: bool
) -> Callable[[Tensor], list[Windows]]:
    """The windows for an input, from kernel, stride, padding and dilation."""
    sides = list(zip(*args, strict=True))

    def windows(x: Tensor) -> list[Windows]:
        sizes = x.shape[-len(sides) :]
        return [
            sliding_windows(size, *side, ceil=ceil, padded=padded)
            for size, side in zip(sizes, sides, strict=True)
        ]

    return windows


def _adaptive(size: Sequence[int | None]) -> Callable[[Tensor], list[Windows]]:
    def windows(x: Tensor) -> list[Windows]:
        sizes = x.shape[-len(size) :]
        return [
            adaptive_windows(n, n if out is None else out)
            for n, out in zip(sizes, size, strict=True)
        ]

    return windows


def avg_pool(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.avg_pool."""
    x, x_edge, kernel, stride, padding, ceil_mode, count_include_pad, divisor, out = args
    if not _is_served(x_edge, out) or math.prod(kernel) > _MOST_SUMMED:
        return None
    ones = (1,) * len(kernel)
    windows = _sliding(
        (kernel, stride or kernel, padding, ones), ceil=ceil_mode, padded=count_include_pad
    )
    pool = Pool(codes_of(x_edge), finish_of(out), divisor)
    return Bound(lambda x: pool(x, windows(x)), (x,))


def adaptive_avg_pool(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.adaptive_avg_pool; to one place it is a mean."""
    x, x_edge, size, out = args
    if not _is_served(x_edge, out):
        return None
    if all(n == 1 for n in size):
        dims = tuple(range(-len(size), 0))
        return mean((x, x_edge, dims, True, out), lookup)
    windows, pool = _adaptive(size), Pool(codes_of(x_edge), finish_of(out))
    return Bound(lambda x: pool(x, windows(x)), (x,))


def mean(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.mean."""
    x, x_edge, dims, keepdim, out = args
    if not _is_served(x_edge, out):
        return None
    kernel = Mean(codes_of(x_edge), finish_of(out))

    def run(x: Tensor) -> Tensor:
        over = sorted({dim % x.ndim for dim in dims or range(x.ndim)})
        if keepdim:
            shape = [1 if dim in over else n for dim, n in enumerate(x.shape)]
        else:
            shape = [n for dim, n in enumerate(x.shape) if dim not in over]
        return kernel(*_as_middle(x, over)).view(shape)

    return Bound(run, (x,))


def _as_middle(x: Tensor, over: list[int]) -> tuple[Tensor, tuple[int, int, int]]:
    """x in memory such that what is averaged is the middle of three dimensions, and their sizes."""
    spatial = over == list(range(2, x.ndim))
    last = CHANNELS_LAST.get(x.ndim)
    if spatial and last is not None and x.is_contiguous(memory_format=last):
        return x, (x.shape[0], math.prod(x.shape[2:]), x.shape[1])
    if over != list(range(over[0], over[-1] + 1)):
        kept = [dim for dim in range(x.ndim) if dim not in over]
        x, over = x.permute(*kept, *over), list(range(len(kept), x.ndim))
    sizes = (x.shape[: over[0]], x.shape[over[0] : over[-1] + 1], x.shape[over[-1] + 1 :])
    return x.contiguous(), (math.prod(sizes[0]), math.prod(sizes[1]), math.prod(sizes[2]))


class _Largest:
    """The largest codes of windows; the dtype of the codes shows when they come."""

    def __init__(self, windows: Callable[[Tensor], list[Windows]]) -> None:
        self._windows = windows
        dtypes = (torch.uint8, torch.int8)
        self._by_dtype = {dtype: Pool(Codes(dtype, 1.0, 0), None) for dtype in dtypes}

    def __call__(self, x: Tensor) -> Tensor:
        return self._by_dtype[x.dtype](x, self._windows(x))


def max_pool(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.max_pool; PyTorch has a kernel for images of uint8 as well."""
    x, kernel, stride, padding, dilation, ceil_mode = args
    if not is_served():
        return None
    sides = (kernel, stride or kernel, padding, dilation)
    ours = _Largest(_sliding(sides, ceil=ceil_mode, padded=False))
    if len(kernel) != 2 or not hasattr(torch.ops.quantized, "max_pool2d"):
        return Bound(ours, (x,))
    given = (*map(list, sides), ceil_mode)
    race = Race(ours, lambda x: torch.ops.quantized.max_pool2d(x, *given))

    def run(x: Tensor) -> Tensor:
        is_images = x.dtype == torch.uint8 and x.ndim == 4
        return cast("Tensor", race(x) if is_images else ours(x))

    return Bound(run, (x,))


def adaptive_max_pool(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.adaptive_max_pool."""
    x, size = args
    return Bound(_Largest(_adaptive(size)), (x,)) if is_served() else None


BINDERS = {
    "int.avg_pool": avg_pool,
    "int.adaptive_avg_pool": adaptive_avg_pool,
    "int.mean": mean,
    "int.max_pool": max_pool,
    "int.adaptive_max_pool": adaptive_max_pool,
}
