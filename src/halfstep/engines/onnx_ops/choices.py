"""Operators that choose elements: slices, parts, indices."""

from collections.abc import Sequence
from typing import Any

import torch

from halfstep.engines.onnx_graph import Number, Ref
from halfstep.engines.onnx_ops.moves import cat
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

# What torch and ONNX take for "to the end".
_END = 2**63 - 1


def sliced(
    g: QdqGraph, x: Ref, axis: int, start: "int | Number", end: "int | Number", step: int = 1
) -> Ref:
    """A part of an axis, bounds cut off as in Python."""
    place = axis % x.rank
    size = x.shape[place]
    length = None
    if size is not None and isinstance(start, int) and isinstance(end, int):
        length = len(range(size)[start:end:step])
    if length == size and step == 1 and size is not None:
        return x
    shape = tuple(length if i == place else n for i, n in enumerate(x.shape))
    bounds = [g.sizes([start]), g.sizes([end])]
    return g.op("Slice", x, *bounds, [place], [step], shape=shape)


@translates("aten.slice")
def slice_(
    g: QdqGraph, x: Ref, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Ref:
    """A part of an axis."""
    start, end = 0 if start is None else start, _END if end is None else end
    if start == 0 and step == 1 and end == _END:
        return x
    return sliced(g, x, dim, start, end, step)


@translates("aten.narrow")
def narrow(g: QdqGraph, x: Ref, dim: int, start: int, length: int) -> Ref:
    """So many elements of an axis."""
    return sliced(g, x, dim, start, start + length)


@translates("aten.select")
def select(g: QdqGraph, x: Ref, dim: int, index: "int | Number") -> Ref:
    """One index of an axis, which is gone then."""
    place = dim % x.rank
    shape = tuple(n for axis, n in enumerate(x.shape) if axis != place)
    return g.op("Gather", x, g.number(index, torch.int64), shape=shape, axis=place)


@translates("aten.unbind")
def unbind(g: QdqGraph, x: Ref, dim: int = 0) -> tuple[Ref, ...]:
    """Each index of an axis."""
    count = x.shape[dim]
    if count is None:
        raise refuse(g, "an unbind of an axis of unknown size", "give it a fixed size")
    return tuple(select(g, x, dim, index) for index in range(count))


@translates("aten.split_with_sizes")
def split_with_sizes(g: QdqGraph, x: Ref, sizes: Sequence[Any], dim: int = 0) -> tuple[Ref, ...]:
    """An axis in parts of given sizes."""
    place = dim % x.rank
    shapes = [
        tuple(
            (None if isinstance(size, Number) else size) if axis == place else n
            for axis, n in enumerate(x.shape)
        )
        for size in sizes
    ]
    dtypes = [x.dtype] * len(sizes)
    return g.emit("Split", [x, g.sizes(sizes)], shapes, dtypes, {"axis": place})


@translates("aten.split", "aten.split.Tensor")
def split(g: QdqGraph, x: Ref, size: Any, dim: int = 0) -> tuple[Ref, ...]:
    """An axis in parts of one size, the last one smaller."""
    if isinstance(size, Sequence):
        return split_with_sizes(g, x, size, dim)
    total = x.shape[dim]
    if total is None or isinstance(size, Number):
        raise refuse(g, "a split of an axis of unknown size", "give it a fixed size")
    sizes = [min(size, total - start) for start in range(0, total, size)]
    return split_with_sizes(g, x, sizes, dim)


@translates("aten.chunk")
def chunk(g: QdqGraph, x: Ref, count: int, dim: int = 0) -> tuple[Ref, ...]:
    """An axis in so many parts."""
    total = x.shape[dim]
    if total is not None:
        return split(g, x, -(-total // count), dim)
    raise refuse(g, "a chunk of an axis of unknown size", "give it a fixed size")


@translates("aten.flip")
def flip(g: QdqGraph, x: Ref, dims: Sequence[int]) -> Ref:
    """Axes backwards."""
    axes = [axis % x.rank for axis in dims]
    ends = [-_END - 1] * len(axes)
    return g.op("Slice", x, [-1] * len(axes), ends, axes, [-1] * len(axes), shape=x.shape)


@translates("aten.roll")
def roll(g: QdqGraph, x: Ref, shifts: Sequence[int], dims: Sequence[int] = ()) -> Ref:
    """Axes turned round."""
    if not dims:
        raise refuse(g, "a roll over all elements", "name the axes")
    for shift, axis in zip(shifts, dims, strict=True):
        if shift:
            parts = [sliced(g, x, axis, -shift, _END), sliced(g, x, axis, 0, -shift)]
            x = Ref(cat(g, parts, axis).name, x.dtype, x.shape)
    return x


@translates("aten.index_select")
def index_select(g: QdqGraph, x: Ref, dim: int, index: Ref) -> Ref:
    """The indices of an axis that a list names."""
    place = dim % x.rank
    shape = (*x.shape[:place], *index.shape, *x.shape[place + 1 :])
    return g.op("Gather", x, index, shape=shape, axis=place)


@translates("aten.gather")
def gather(g: QdqGraph, x: Ref, dim: int, index: Ref, sparse_grad: bool = False) -> Ref:
    """Along an axis, for each place an index of its own."""
    return g.op("GatherElements", x, index, shape=index.shape, axis=dim)


@translates("aten.index")
def index(g: QdqGraph, x: Ref, indices: Sequence[Ref | None]) -> Ref:
    """``x[..., index, ...]`` with one tensor of indices."""
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if len(given) != 1 or given[0][1].dtype == torch.bool:
        raise refuse(
            g, "an index of several tensors or of a mask", "use index_select, gather or where"
        )
    axis, each = given[0]
    shape = (*x.shape[:axis], *each.shape, *x.shape[axis + 1 :])
    return g.op("Gather", x, each, shape=shape, axis=axis)
