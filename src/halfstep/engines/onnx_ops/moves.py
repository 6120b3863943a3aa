"""Operators that only move elements: other shapes, other orders of axes."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from halfstep.engines.onnx_graph import Number, Ref
from halfstep.engines.onnx_ops.table import translates
from halfstep.engines.onnx_qdq import QdqGraph

Sizes: TypeAlias = "Sequence[int | Number]"


@translates("aten.view", "aten.reshape", "aten._unsafe_view")
def view(g: QdqGraph, x: Ref, sizes: Sizes) -> Ref:
    """Another shape."""
    return g.reshape(x, sizes)


@translates("aten.view_as", "aten.reshape_as")
def view_as(g: QdqGraph, x: Ref, other: Ref) -> Ref:
    """The shape of another value."""
    shape = g.op("Shape", other, shape=(other.rank,), dtype=torch.int64)
    return g.op("Reshape", x, shape, shape=other.shape)


@translates("aten.flatten")
def flatten(g: QdqGraph, x: Ref, start: int = 0, end: int = -1) -> Ref:
    """Some axes as one."""
    if not x.rank:
        return g.reshape(x, (1,))
    first, last = start % x.rank, end % x.rank
    before = [g.size(x, axis) for axis in range(first)]
    after = [g.size(x, axis) for axis in range(last + 1, x.rank)]
    if first == 1 and last == x.rank - 1 > 0:
        return g.op("Flatten", x, shape=(x.shape[0], _product(x.shape[1:])), axis=1)
    return g.reshape(x, (*before, -1, *after))


def _product(sizes: Sequence[int | None]) -> int | None:
    total = 1
    for size in sizes:
        if size is None:
            return None
        total *= size
    return total


@translates("aten.unflatten")
def unflatten(g: QdqGraph, x: Ref, dim: int, sizes: Sizes) -> Ref:
    """One axis as several."""
    place = dim % x.rank
    before = [g.size(x, axis) for axis in range(place)]
    after = [g.size(x, axis) for axis in range(place + 1, x.rank)]
    return g.reshape(x, (*before, *sizes, *after))


@translates("aten.permute")
def permute(g: QdqGraph, x: Ref, order: Sequence[int]) -> Ref:
    """The axes in another order."""
    return g.transpose(x, [axis % x.rank for axis in order])


@translates("aten.transpose", "aten.swapaxes", "aten.swapdims")
def transpose(g: QdqGraph, x: Ref, one: int, other: int) -> Ref:
    """Two axes exchanged."""
    order = list(range(x.rank))
    if order:
        order[one], order[other] = order[other], order[one]
    return g.transpose(x, order)


@translates("aten.t")
def t(g: QdqGraph, x: Ref) -> Ref:
    """A matrix transposed."""
    return transpose(g, x, 0, 1) if x.rank == 2 else x


@translates("aten.mT")
def matrix_transposed(g: QdqGraph, x: Ref) -> Ref:
    """The last two axes exchanged."""
    return transpose(g, x, -2, -1)


@translates("aten.numpy_T")
def reversed_axes(g: QdqGraph, x: Ref) -> Ref:
    """The axes in reverse."""
    return g.transpose(x, list(reversed(range(x.rank))))


@translates("aten.movedim", "aten.moveaxis")
def movedim(g: QdqGraph, x: Ref, source: Any, target: Any) -> Ref:
    """Some axes to other places."""
    sources = [s % x.rank for s in ([source] if isinstance(source, int) else source)]
    targets = [d % x.rank for d in ([target] if isinstance(target, int) else target)]
    rest = iter(axis for axis in range(x.rank) if axis not in sources)
    placed = dict(zip(targets, sources, strict=True))
    order = [placed[axis] if axis in placed else next(rest) for axis in range(x.rank)]
    return g.transpose(x, order)


@translates("aten.squeeze")
def squeeze(g: QdqGraph, x: Ref, dim: Any = None) -> Ref:
    """Axes of size 1 gone; one that is not known to be 1 is taken for 1."""
    if dim is None:
        axes = [axis for axis, n in enumerate(x.shape) if n == 1]
    else:
        axes = [a % x.rank for a in ([dim] if isinstance(dim, int) else dim)]
    axes = [axis for axis in axes if x.shape[axis] in (1, None)]
    shape = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    return g.op("Squeeze", x, axes, shape=shape) if axes else x


@translates("aten.unsqueeze")
def unsqueeze(g: QdqGraph, x: Ref, dim: int) -> Ref:
    """A new axis of size 1."""
    place = dim % (x.rank + 1)
    return g.op("Unsqueeze", x, [place], shape=(*x.shape[:place], 1, *x.shape[place:]))


@translates("aten.expand")
def expand(g: QdqGraph, x: Ref, sizes: Sizes, **_: Any) -> Ref:
    """Axes of size 1 repeated; -1 keeps a size, as 1 does."""
    if not isinstance(sizes, Sequence):
        sizes = [sizes]
    wanted = [1 if isinstance(n, int) and n == -1 else n for n in sizes]
    padded = (1,) * (len(wanted) - x.rank) + x.shape
    shape = tuple(_expanded(n, old) for n, old in zip(wanted, padded, strict=True))
    if shape == x.shape and None not in shape:
        return x
    return g.op("Expand", x, g.sizes(wanted), shape=shape)


def _expanded(wanted: "int | Number", old: int | None) -> int | None:
    if isinstance(wanted, Number):
        return None if old == 1 else old
    return old if wanted == 1 else wanted


@translates("aten.expand_as")
def expand_as(g: QdqGraph, x: Ref, other: Ref) -> Ref:
    """Expanded to the shape of another value."""
    shape = g.op("Shape", other, shape=(other.rank,), dtype=torch.int64)
    return g.op("Expand", x, shape, shape=other.shape)


@translates("aten.repeat", "aten.tile")
def repeat(g: QdqGraph, x: Ref, times: Sizes) -> Ref:
    """The whole repeated along axes."""
    new = len(times) - x.rank
    if new > 0:
        x = g.reshape(x, (*[1] * new, *(g.size(x, axis) for axis in range(x.rank))))
    times = (*[1] * -new, *times)
    shape = tuple(
        n * m if isinstance(m, int) and n is not None else None
        for n, m in zip(x.shape, times, strict=True)
    )
    return g.op("Tile", x, g.sizes(times), shape=shape)


@translates("aten.repeat_interleave.self_int")
def repeat_interleave(g: QdqGraph, x: Ref, times: int, dim: int | None = None, **_: Any) -> Ref:
    """Each element repeated along an axis."""
    if dim is None:
        x, dim = g.reshape(x, (-1,)), 0
    place = dim % x.rank
    each = unsqueeze(g, x, place + 1)
    each = expand(g, each, [1] * (place + 1) + [times] + [1] * (x.rank - place - 1))
    sizes = [g.size(x, axis) for axis in range(x.rank)]
    return g.reshape(each, (*sizes[:place], -1, *sizes[place + 1 :]))


@translates("aten.pixel_shuffle")
def pixel_shuffle(g: QdqGraph, x: Ref, factor: int) -> Ref:
    """(..., C r r, H, W) to (..., C, H r, W r)."""
    n, c, h, w = x.shape
    shape = (n, None if c is None else c // factor**2, _times(h, factor), _times(w, factor))
    return g.op("DepthToSpace", x, shape=shape, blocksize=factor, mode="CRD")


def _times(size: int | None, factor: int) -> int | None:
    return None if size is None else size * factor


@translates("aten.pixel_unshuffle")
def pixel_unshuffle(g: QdqGraph, x: Ref, factor: int) -> Ref:
    """(N, C, H r, W r) to (N, C r r, H, W)."""
    n, c, h, w = (g.size(x, axis) for axis in range(4))
    rows, columns = (_divided(g, size, factor) for size in (h, w))
    parts = g.reshape(x, (n, c, rows, factor, columns, factor))
    moved = g.transpose(parts, (0, 1, 3, 5, 2, 4))
    channels = c * factor**2 if isinstance(c, int) else -1
    return g.reshape(moved, (n, channels, rows, columns))


def _divided(g: QdqGraph, size: "int | Number", factor: int) -> "int | Number":
    if isinstance(size, int):
        return size // factor
    found = g.op("Div", size, [factor])
    return Number(found.name, torch.int64, (1,))


@translates("aten.channel_shuffle")
def channel_shuffle(g: QdqGraph, x: Ref, groups: int) -> Ref:
    """The channels of all groups in turn."""
    sizes = [g.size(x, axis) for axis in range(x.rank)]
    parts = g.reshape(x, (sizes[0], groups, _divided(g, sizes[1], groups), *sizes[2:]))
    moved = g.transpose(parts, (0, 2, 1, *range(3, x.rank + 1)))
    return g.reshape(moved, sizes)


@translates("aten.cat", "aten.concat")
def cat(g: QdqGraph, parts: Sequence[Ref], dim: int = 0) -> Ref:
    """One behind the other along an axis; an empty list of torch's kind has no dimensions."""
    parts = [part for part in parts if part.shape != (0,)] or list(parts)
    place = dim % parts[0].rank
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    sizes = [part.shape[place] for part in parts]
    total = None if None in sizes else sum(n for n in sizes if n is not None)
    shape = tuple(total if axis == place else n for axis, n in enumerate(parts[0].shape))
    return g.op("Concat", *(g.cast(part, dtype) for part in parts), shape=shape, axis=place)


@translates("aten.stack")
def stack(g: QdqGraph, parts: Sequence[Ref], dim: int = 0) -> Ref:
    """One behind the other along a new axis."""
    place = dim % (parts[0].rank + 1)
    return cat(g, [unsqueeze(g, part, place) for part in parts], place)
