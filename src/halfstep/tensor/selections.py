"""Parts of a tensor, and its parts in another order: along the kept axis the scales go along."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.spec import PerGroup, PerTensor, PerToken
from halfstep.tensor.axes import Kind, kinds
from halfstep.tensor.dispatch import operator
from halfstep.tensor.moves import (
    Move,
    axis_of,
    group_size,
    kind_of,
    moved_alike,
    per_tensor,
    place,
    torn,
    view,
    wide,
)
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


@operator(aten.slice.Tensor)
def slice_(
    func: Any, q: QTensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    """A range of indices along one dimension."""
    at = place(dim, q.ndim)
    picked = slice(start, end, step)
    first, last, _ = picked.indices(q.shape[at])
    size, last = group_size(q), max(first, last)
    if kind_of(q, at) is Kind.CUT and (step != 1 or first % size or last % size):
        raise torn(q, at, f"a slice from {first} to {last} by {step}")
    runs = slice(first // size, last // size)
    index = {Kind.KEPT: picked, Kind.CUT: runs, Kind.SHARED: slice(None)}[kind_of(q, at)]

    def along(part: slice) -> Move:
        return lambda t: t[(slice(None),) * at + (part,)]

    def result() -> QTensor:
        return moved_alike(q, along(picked), axis_of(q), along(index))

    return view(func, q, (dim, start, end, step), result)


@operator(aten.select.int)
def select(func: Any, q: QTensor, dim: int, index: int) -> Any:
    """One index along one dimension; along the channel axis the result is per tensor."""
    at, axis = place(dim, q.ndim), axis_of(q)
    to = None if axis is None or axis == at else axis - (axis > at)
    row = index % max(q.shape[at], 1)
    qrow = {Kind.KEPT: row, Kind.CUT: row // group_size(q), Kind.SHARED: 0}[kind_of(q, at)]

    def result() -> QTensor:
        return moved_alike(q, lambda t: t.select(at, index), to, lambda t: t.select(at, qrow))

    return view(func, q, (dim, index), result)


@operator(aten.split.Tensor, aten.split_with_sizes.default)
def split(func: Any, q: QTensor, sizes: int | Sequence[int], dim: int = 0) -> Any:
    """Consecutive pieces along one dimension."""
    at, start, parts = place(dim, q.ndim), 0, []
    for piece in func(q.ints, sizes, at):
        parts.append(aten.slice.Tensor(q, at, start, start + piece.shape[at]))
        start += piece.shape[at]
    return parts


@operator(aten.unbind.int)
def unbind(func: Any, q: QTensor, dim: int = 0) -> Any:
    """All indices along one dimension."""
    size = q.shape[place(dim, q.ndim)]
    return [aten.select.int(q, dim, index) for index in range(size)]


@operator(aten.index_select.default)
def index_select(func: Any, q: QTensor, dim: int, index: Tensor) -> Any:
    """Chosen indices along one dimension."""
    at = place(dim, q.ndim)
    if kind_of(q, at) is Kind.CUT:
        raise torn(q, at, "index_select")

    def chosen(t: Tensor) -> Tensor:
        return wide(t).index_select(at, index).to(t.dtype)

    def kept(t: Tensor) -> Tensor:
        return chosen(t) if kind_of(q, at) is Kind.KEPT else t.clone()

    return moved_alike(q, chosen, axis_of(q), kept)


@operator(aten.index.Tensor)
def index(func: Any, q: QTensor, indices: Sequence[Tensor | None]) -> Any:
    """Advanced indexing: one list along one dimension keeps the axis; several, per tensor only."""
    used = [dim for dim, chosen in enumerate(indices) if chosen is not None]
    chosen = indices[used[0]] if used else None
    if len(used) == 1 and chosen is not None and chosen.ndim == 1:
        if kind_of(q, used[0]) is Kind.CUT:
            raise torn(q, used[0], "an index")
        if chosen.dtype not in (torch.bool, torch.uint8):
            size = q.shape[used[0]]
            return index_select(func, q, used[0], torch.where(chosen < 0, chosen + size, chosen))
        if chosen.shape[0] == q.shape[used[0]]:
            return index_select(func, q, used[0], chosen.nonzero().flatten())
    if not isinstance(q.spec.granularity, PerTensor):
        return NotImplemented
    return per_tensor(q, func(wide(q.ints), indices))


@operator(aten.gather.default)
def gather(func: Any, q: QTensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """Chosen elements along one dimension on which no scale depends; floats otherwise."""
    at, every = place(dim, q.ndim), kinds(q.spec.granularity, q.shape)
    one_scale = not every or every[at] is Kind.SHARED
    if Kind.CUT in every or not one_scale or index.ndim != q.ndim:
        return NotImplemented
    sizes = zip(every, index.shape, strict=True)
    part = tuple(slice(size if kind is Kind.KEPT else None) for kind, size in sizes)

    def gathered(t: Tensor) -> Tensor:
        return wide(t).gather(at, index).to(t.dtype)

    return moved_alike(q, gathered, axis_of(q), lambda t: t[part].clone())


@operator(aten.flip.default)
def flip(func: Any, q: QTensor, dims: Sequence[int]) -> Any:
    """Reverse dimensions; the scale's are reversed with them."""
    return moved_alike(q, lambda t: wide(t).flip(list(dims)).to(t.dtype), axis_of(q))


@operator(aten.roll.default)
def roll(func: Any, q: QTensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Rotate along dimensions; all at once, per tensor only."""
    size, axis = group_size(q), axis_of(q)
    if not dims:
        alone = isinstance(q.spec.granularity, PerTensor)
        return per_tensor(q, wide(q.ints).roll(list(shifts))) if alone else NotImplemented
    steps = []
    for shift, dim in zip(shifts, dims, strict=True):
        at = place(dim, q.ndim)
        cut = at == axis and kind_of(q, at) is Kind.CUT
        if cut and shift % size:
            raise torn(q, at, f"a roll by {shift}")
        steps.append(shift // size if cut else shift)

    def rolled(t: Tensor, by: Sequence[int]) -> Tensor:
        return wide(t).roll(list(by), list(dims)).to(t.dtype)

    return moved_alike(q, lambda t: rolled(t, shifts), axis, lambda t: rolled(t, steps))


@operator(aten.repeat.default)
def repeat(func: Any, q: QTensor, repeats: Sequence[int]) -> Any:
    """Copies side by side."""
    new, axis = len(repeats) - q.ndim, axis_of(q)
    outer = Kind.KEPT if isinstance(q.spec.granularity, PerGroup | PerToken) else Kind.SHARED
    every = [outer] * new + kinds(q.spec.granularity, q.shape)
    alike = [n if kind is not Kind.SHARED else 1 for n, kind in zip(repeats, every, strict=True)]
    to = None if axis is None else axis + new
    return moved_alike(
        q, lambda t: wide(t).repeat(list(repeats)).to(t.dtype), to, lambda t: t.repeat(alike)
    )
