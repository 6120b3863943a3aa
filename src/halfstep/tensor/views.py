"""Operators that move values without changing them: integers and scale take the same view.

Every function here keeps the invariant ``scale.shape == granularity.scale_shape(shape)``. Where a
view would leave a channel or a group without one scale of its own, it raises.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing

from halfstep.errors import GranularityError, MutationError
from halfstep.spec import Granularity, PerTensor
from halfstep.tensor.axes import Kind, kinds, moved, reshaped, special_axis
from halfstep.tensor.dispatch import function, operator
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten
Move = Callable[[Tensor], Tensor]


def view(func: Any, q: QTensor, args: Sequence[Any], result: Callable[[], QTensor]) -> Any:
    """Build a view's result so that autograd and inference mode accept it as a view of ``q``."""
    with torch.inference_mode(False):
        out = result()
    return return_and_correct_aliasing(func, (q, *args), {}, out)


def rebuilt(
    q: QTensor, ints: Tensor, scale: Tensor, zero_point: Tensor, granularity: Granularity
) -> QTensor:
    """A tensor of moved integers; scale and zero point are expanded to what the granularity says."""
    shape = granularity.scale_shape(tuple(ints.shape))
    spec = q.spec.with_granularity(granularity)
    return QTensor.from_parts(ints, scale.expand(shape), zero_point.expand(shape), spec, q.dtype)


def moved_alike(q: QTensor, move: Move, axis: int | None, qmove: Move | None = None) -> QTensor:
    """Move integers by ``move``, scale and zero point by ``qmove`` or alike; the axis goes to ``axis``."""
    ints, qmove = move(q.ints), qmove or move
    granularity = moved(q.spec.granularity, q.shape, axis, ints.shape)
    return rebuilt(q, ints, qmove(q.scale), qmove(q.zero_point), granularity)


def axis_of(q: QTensor) -> int | None:
    """The kept or cut axis of a tensor."""
    return special_axis(q.spec.granularity, q.ndim)


def kind_of(q: QTensor, dim: int) -> Kind:
    """What the scale does along one dimension."""
    return kinds(q.spec.granularity, q.ndim)[dim]


def group_size(q: QTensor) -> int:
    """The length of a run that shares a scale along the cut axis."""
    axis = axis_of(q)
    groups = 1 if axis is None else q.scale.shape[axis]
    return 1 if axis is None or not groups else q.shape[axis] // groups


# Permutations.


@operator(aten.permute.default)
def permute(func: Any, q: QTensor, dims: Sequence[int]) -> Any:
    """Reorder the dimensions."""
    order = [dim % q.ndim for dim in dims]
    axis = axis_of(q)
    place = None if axis is None else order.index(axis)
    return view(func, q, (dims,), lambda: moved_alike(q, lambda t: t.permute(order), place))


@operator(aten.transpose.int, aten.t.default)
def transpose(func: Any, q: QTensor, dim0: int = 0, dim1: int = 1) -> Any:
    """Swap two dimensions."""
    if q.ndim < 2:
        return view(func, q, (), lambda: moved_alike(q, lambda t: t.view_as(t), axis_of(q)))
    first, second = dim0 % q.ndim, dim1 % q.ndim
    swap = {first: second, second: first}
    axis = axis_of(q)
    place = None if axis is None else swap.get(axis, axis)
    args = () if func is aten.t.default else (dim0, dim1)
    return view(func, q, args, lambda: moved_alike(q, lambda t: t.transpose(first, second), place))


# Reshapes.


@operator(aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)
def view_as_shape(func: Any, q: QTensor, size: Sequence[int], *strides: Any) -> Any:
    """Read the same elements, in order, as another shape."""
    if func is aten._unsafe_view.default:
        return _reshape(q, size)
    return view(func, q, (size, *strides), lambda: _reshape(q, size))


@function("reshape")
def reshape(func: Any, q: QTensor, *shape: Any, **kwargs: Any) -> Any:
    """``reshape`` and its keyword form; checked before anything is copied."""
    size = kwargs.get("shape", shape[0] if len(shape) == 1 else shape)
    size = (size,) if isinstance(size, int) else size
    if q.ints.is_contiguous():
        return q.view(size)
    return q.contiguous().view(size)


def _reshape(q: QTensor, size: Sequence[int]) -> QTensor:
    ints = q.ints.view(size)
    granularity = reshaped(q.spec.granularity, q.shape, ints.shape)
    shape = granularity.scale_shape(tuple(ints.shape))
    return rebuilt(q, ints, q.scale.reshape(shape), q.zero_point.reshape(shape), granularity)


@operator(aten.unsqueeze.default)
def unsqueeze(func: Any, q: QTensor, dim: int) -> Any:
    """Insert a dimension of size 1."""
    at, axis = dim % (q.ndim + 1), axis_of(q)
    place = None if axis is None else axis + (axis >= at)
    return view(func, q, (dim,), lambda: moved_alike(q, lambda t: t.unsqueeze(at), place))


@operator(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(func: Any, q: QTensor, dims: int | Sequence[int] | None = None) -> Any:
    """Drop dimensions of size 1."""
    wanted = range(q.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = sorted({dim % q.ndim for dim in wanted if q.ndim and q.shape[dim] == 1})
    axis = axis_of(q)
    place = None if axis is None or axis in gone else axis - sum(dim < axis for dim in gone)
    args = () if dims is None else (dims,)
    return view(func, q, args, lambda: moved_alike(q, lambda t: t.squeeze(gone), place))


@operator(aten.expand.default)
def expand(func: Any, q: QTensor, size: Sequence[int], *, implicit: bool = False) -> Any:
    """Repeat dimensions of size 1 without copying."""
    new, axis = len(size) - q.ndim, axis_of(q)
    place = None if axis is None else axis + new
    pad = (None,) * new + (...,)
    expanded = q.ints.expand(size)

    def result() -> QTensor:
        if (
            axis is not None
            and kind_of(q, axis) is Kind.CUT
            and q.shape[axis] != expanded.shape[place]
        ):
            raise GranularityError(
                f"expand would stretch axis {axis}, which {q.spec} cuts: repeat it first"
            )
        return moved_alike(q, lambda t: t.expand(size), place, lambda t: t[pad])

    return view(func, q, (size,), result)


# Selections.


@operator(aten.slice.Tensor)
def slice_(
    func: Any,
    q: QTensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """A range of indices along one dimension."""
    at, size = dim % q.ndim, q.shape[dim]
    picked = slice(start, end, step)
    first, last, _ = picked.indices(size)
    kind, group = kind_of(q, at), group_size(q)
    cut = slice(first // group, max(last, first) // group)
    if kind is Kind.CUT and (step != 1 or first % group or max(last, first) % group):
        raise _torn(q, at, f"a slice from {first} to {last} by {step}")
    index = {Kind.KEPT: picked, Kind.CUT: cut, Kind.SHARED: slice(None)}[kind]

    def along(part: slice) -> Move:
        return lambda t: t[(slice(None),) * at + (part,)]

    return view(
        func,
        q,
        (dim, start, end, step),
        lambda: moved_alike(q, along(picked), axis_of(q), along(index)),
    )


@operator(aten.select.int)
def select(func: Any, q: QTensor, dim: int, index: int) -> Any:
    """One index along one dimension; along the channel axis the result is per tensor."""
    at, axis = dim % q.ndim, axis_of(q)
    place = None if axis is None or axis == at else axis - (axis > at)
    kind, row = kind_of(q, at), index % max(q.shape[at], 1)
    qrow = {Kind.KEPT: row, Kind.CUT: row // group_size(q), Kind.SHARED: 0}[kind]
    return view(
        func,
        q,
        (dim, index),
        lambda: moved_alike(q, lambda t: t.select(at, index), place, lambda t: t.select(at, qrow)),
    )


@operator(aten.split.Tensor, aten.split_with_sizes.default)
def split(func: Any, q: QTensor, sizes: int | Sequence[int], dim: int = 0) -> Any:
    """Consecutive pieces along one dimension."""
    size = q.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, size - at) for at in range(0, size, max(sizes, 1))] or [0]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [aten.slice.Tensor(q, dim, end - n, end) for n, end in zip(sizes, ends, strict=True)]


@operator(aten.unbind.int)
def unbind(func: Any, q: QTensor, dim: int = 0) -> Any:
    """All indices along one dimension."""
    return [aten.select.int(q, dim, index) for index in range(q.shape[dim])]


@operator(aten.index_select.default)
def index_select(func: Any, q: QTensor, dim: int, index: Tensor) -> Any:
    """Chosen indices along one dimension."""
    at = dim % max(q.ndim, 1)
    kind = kind_of(q, at) if q.ndim else Kind.SHARED
    if kind is Kind.CUT:
        raise _torn(q, at, "index_select")
    same: Move = lambda t: t  # noqa: E731
    take: Move = lambda t: t.index_select(at, index)  # noqa: E731
    return moved_alike(q, take, axis_of(q), take if kind is Kind.KEPT else same)


@operator(aten.index.Tensor)
def index(func: Any, q: QTensor, indices: Sequence[Tensor | None]) -> Any:
    """Advanced indexing; with one index along one dimension the axis is kept, else per tensor only."""
    used = [dim for dim, chosen in enumerate(indices) if chosen is not None]
    chosen = indices[used[0]] if used else None
    if len(used) == 1 and chosen is not None and chosen.ndim == 1:
        rows = chosen.nonzero().flatten() if chosen.dtype in (torch.bool, torch.uint8) else chosen
        return index_select(func, q, used[0], rows)
    if not isinstance(q.spec.granularity, PerTensor):
        return NotImplemented
    return _per_tensor(q, func(q.ints, indices))


@operator(aten.gather.default)
def gather(func: Any, q: QTensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """Chosen elements along one dimension on which no scale depends; floats otherwise."""
    if q.ndim and kind_of(q, dim % q.ndim) is not Kind.SHARED:
        return NotImplemented
    part = tuple(slice(size) for size in index.shape)
    return moved_alike(
        q, lambda t: _wide(t).gather(dim, index).to(t.dtype), axis_of(q), lambda t: t[part]
    )


@operator(aten.flip.default)
def flip(func: Any, q: QTensor, dims: Sequence[int]) -> Any:
    """Reverse dimensions; the scale's are reversed with them."""
    return moved_alike(q, lambda t: t.flip(dims), axis_of(q))


@operator(aten.roll.default)
def roll(func: Any, q: QTensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Rotate along dimensions; floats where elements would change the scale that they share."""
    group, axis = group_size(q), axis_of(q)
    if not dims:
        alone = isinstance(q.spec.granularity, PerTensor)
        return _per_tensor(q, q.ints.roll(shifts)) if alone else NotImplemented
    steps = []
    for shift, dim in zip(shifts, dims, strict=True):
        cut = dim % q.ndim == axis and kind_of(q, axis) is Kind.CUT
        if cut and shift % group:
            raise _torn(q, dim, f"a roll by {shift}")
        steps.append(shift // group if cut else shift)
    return moved_alike(q, lambda t: t.roll(shifts, dims), axis, lambda t: t.roll(steps, dims))


@operator(aten.repeat.default)
def repeat(func: Any, q: QTensor, repeats: Sequence[int]) -> Any:
    """Copies side by side."""
    new, axis = len(repeats) - q.ndim, axis_of(q)
    every = [Kind.KEPT if axis is not None and not _is_channel(q) else Kind.SHARED] * new
    every += kinds(q.spec.granularity, q.ndim)
    alike = [n if kind is not Kind.SHARED else 1 for n, kind in zip(repeats, every, strict=True)]
    place = None if axis is None else axis + new
    return moved_alike(q, lambda t: t.repeat(repeats), place, lambda t: t.repeat(alike))


# The same values in another place.


@operator(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def detach(func: Any, q: QTensor) -> Any:
    """The same tensor without history."""
    return view(func, q, (), lambda: _same(q, lambda t: t.detach()))


@operator(aten.clone.default)
def clone(func: Any, q: QTensor, *, memory_format: torch.memory_format | None = None) -> QTensor:
    """A copy; also the way to another memory format."""
    if q.spec.dtype.is_packed:
        return _same(q, lambda t: t.clone())
    ints = q.ints.clone(memory_format=memory_format)
    return QTensor(ints, q.scale.clone(), q.zero_point.clone(), q.spec, dtype=q.dtype)


@operator(aten._to_copy.default)
def to_copy(func: Any, q: QTensor, *, dtype: torch.dtype | None = None, **where: Any) -> Any:
    """Another device, or another float dtype to stand for; the integers stay as they are."""
    dtype = dtype or q.dtype
    if not dtype.is_floating_point:
        return NotImplemented
    kept = {name: value for name, value in where.items() if name in ("device", "non_blocking")}
    made = _same(q, lambda t: t.to(**kept, copy=True))
    shape = q.shape if q.spec.dtype.is_packed else None
    made = QTensor(*made._parts(), q.spec, dtype=dtype, shape=shape)
    layout = where.get("memory_format")
    return (
        made if layout in (None, torch.preserve_format) else made.contiguous(memory_format=layout)
    )


@operator(aten.copy_.default)
def copy_(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    """Between two tensors of one format: the integers and their scales."""
    if not isinstance(target, QTensor):
        return NotImplemented
    if (
        not isinstance(source, QTensor)
        or target.spec != source.spec
        or target.shape != source.shape
    ):
        what = source.spec if isinstance(source, QTensor) else f"{source.dtype} values"
        raise MutationError(
            f"{what} cannot be copied into a tensor quantized as {target.spec}: quantize them first "
            "with the same spec and shape, or load with assign=True"
        )
    for into, value in zip(target._parts(), source._parts(), strict=True):
        into.copy_(value, non_blocking)
    return target


def _wide(t: Tensor) -> Tensor:
    """uint16, for which torch has few operators, as int32; anything else as it is."""
    return t.to(torch.int32) if t.dtype == torch.uint16 else t


def _same(q: QTensor, move: Move) -> QTensor:
    shape = q.shape if q.spec.dtype.is_packed else None
    return QTensor(*(move(part) for part in q._parts()), q.spec, dtype=q.dtype, shape=shape)


def _per_tensor(q: QTensor, ints: Tensor) -> QTensor:
    """New integers of any shape under the one scale of a per-tensor tensor."""
    ones = (1,) * ints.ndim
    return QTensor.from_parts(
        ints, q.scale.reshape(ones), q.zero_point.reshape(ones), q.spec, q.dtype
    )


def _is_channel(q: QTensor) -> bool:
    axis = axis_of(q)
    return axis is not None and kind_of(q, axis) is Kind.KEPT


def _torn(q: QTensor, dim: int, what: str) -> GranularityError:
    return GranularityError(
        f"{what} along axis {dim} would tear runs of {group_size(q)} values that share a scale "
        f"({q.spec.granularity}): use multiples of {group_size(q)}, or q.dequantize() first"
    )
