"""Views that only reorder dimensions or read the elements, in order, as another shape.

The integers are viewed, and scale and zero point with them, so the axis follows. Where a view
would leave a channel or a group without one scale of its own, it raises.
"""

from collections.abc import Sequence
from typing import Any

import torch

from halfstep.errors import ArgumentError, GranularityError
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind, reshaped
from halfstep.tensor.dispatch import function, operator
from halfstep.tensor.moves import axis_of, kind_of, moved_alike, place, rebuilt, view
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


@operator(aten.permute.default)
def permute(func: Any, q: QTensor, dims: Sequence[int]) -> Any:
    """Reorder the dimensions."""
    order, axis = [place(dim, q.ndim) for dim in dims], axis_of(q)
    to = order.index(axis) if axis in order else None
    return view(func, q, (dims,), lambda: moved_alike(q, lambda t: t.permute(order), to))


@operator(aten.transpose.int)
def transpose(func: Any, q: QTensor, dim0: int, dim1: int) -> Any:
    """Swap two dimensions."""
    first, second, axis = place(dim0, q.ndim), place(dim1, q.ndim), axis_of(q)
    to = None if axis is None else {first: second, second: first}.get(axis, axis)

    def result() -> QTensor:
        return moved_alike(q, lambda t: t.transpose(first, second), to)

    return view(func, q, (dim0, dim1), result)


@operator(aten.t.default)
def transpose_matrix(func: Any, q: QTensor) -> Any:
    """Swap the dimensions of a matrix; a vector or a number stays as it is."""
    if q.ndim > 2:
        raise ArgumentError(f"t() takes up to 2 dimensions, not {q.ndim}: use transpose or mT")
    axis = axis_of(q)
    to = None if axis is None else q.ndim - 1 - axis
    return view(func, q, (), lambda: moved_alike(q, lambda t: t.t(), to))


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


@operator(aten.as_strided.default)
def as_strided(
    func: Any, q: QTensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> QTensor:
    """Elements by their place in memory; no scale can follow, so per tensor only."""
    if not isinstance(q.spec.granularity, PerTensor):
        raise GranularityError(
            f"as_strided reads memory, and the scales of {q.spec} cannot follow: use slices and "
            "permutations, or q.dequantize() first"
        )
    ints = q.ints
    start = None if offset is None else ints.storage_offset() + offset
    ints, ones = ints.as_strided(size, stride, start), (1,) * len(size)
    scale, zero_point = q.scale.reshape(ones), q.zero_point.reshape(ones)
    made = rebuilt(q, ints, scale, zero_point, q.spec.granularity)
    made.is_apart = q.spec.dtype.is_packed
    return made


@operator(aten.unsqueeze.default)
def unsqueeze(func: Any, q: QTensor, dim: int) -> Any:
    """Insert a dimension of size 1."""
    at, axis = place(dim, q.ndim + 1), axis_of(q)
    to = None if axis is None else axis + (axis >= at)
    return view(func, q, (dim,), lambda: moved_alike(q, lambda t: t.unsqueeze(at), to))


@operator(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(func: Any, q: QTensor, dims: int | Sequence[int] | None = None) -> Any:
    """Drop dimensions of size 1."""
    wanted = range(q.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    every = [place(dim, q.ndim) for dim in wanted]
    gone, axis = sorted({dim for dim in every if q.ndim and q.shape[dim] == 1}), axis_of(q)
    to = None if axis is None or axis in gone else axis - sum(dim < axis for dim in gone)
    args = () if dims is None else (dims,)
    return view(func, q, args, lambda: moved_alike(q, lambda t: t.squeeze(gone), to))


@operator(aten.expand.default)
def expand(func: Any, q: QTensor, size: Sequence[int], *, implicit: bool = False) -> Any:
    """Repeat dimensions of size 1 without copying."""
    new, axis = len(size) - q.ndim, axis_of(q)
    to, pad = None if axis is None else axis + new, (None,) * new + (...,)

    def result() -> QTensor:
        grows = axis is not None and q.shape[axis] != q.ints.expand(size).shape[axis + new]
        if grows and kind_of(q, axis or 0) is Kind.CUT:
            raise GranularityError(
                f"expand would stretch axis {axis}, which {q.spec} cuts: repeat it first"
            )
        return moved_alike(q, lambda t: t.expand(size), to, lambda t: t[pad])

    return view(func, q, (size,), result)
