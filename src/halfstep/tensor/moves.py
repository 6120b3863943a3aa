"""What views are built from: integers move by one function, scale and zero point by its twin.

Every function here keeps the invariant ``scale.shape == granularity.scale_shape(shape)``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing

from halfstep.errors import GranularityError
from halfstep.numerics.affine import spread
from halfstep.spec import Granularity, PerGroup
from halfstep.spec.granularity import normalize_axis
from halfstep.tensor.axes import Kind, kinds, moved, special_axis
from halfstep.tensor.qtensor import QTensor

Move = Callable[[Tensor], Tensor]


def view(
    func: Any,
    q: QTensor,
    args: Sequence[Any],
    result: Callable[[], QTensor],
    *,
    shares: bool = False,
) -> Any:
    """Build a view's result so that autograd and inference mode accept it as a view of ``q``.

    shares: it has q's own integers also where those are packed.

    In a compiled program it is a tensor of its own: torch would rebuild a view that is returned
    from its strides, which says nothing of scales.
    """
    if torch.compiler.is_compiling():
        return result()
    with torch.inference_mode(mode=False):
        out = result()
    out.is_apart = out.is_apart or (q.spec.dtype.is_packed and not shares)
    return return_and_correct_aliasing(func, (q, *args), {}, out)


def rebuilt(
    q: QTensor, ints: Tensor, scale: Tensor, zero_point: Tensor, granularity: Granularity
) -> QTensor:
    """A tensor of moved integers; scale and zero point expand to what the granularity says."""
    shape = granularity.scale_shape(tuple(ints.shape))
    spec = q.spec.with_granularity(granularity)
    return QTensor.from_parts(ints, scale.expand(shape), zero_point.expand(shape), spec, q.dtype)


def moved_alike(q: QTensor, move: Move, axis: int | None, qmove: Move | None = None) -> QTensor:
    """Integers by ``move``, scale and zero point by ``qmove`` or alike; the axis to ``axis``."""
    ints, qmove = move(q.ints), qmove or move
    granularity = moved(q.spec.granularity, q.shape, axis, ints.shape)
    return rebuilt(q, ints, qmove(q.scale), qmove(q.zero_point), granularity)


def per_tensor(q: QTensor, ints: Tensor) -> QTensor:
    """New integers of any shape under the one scale of a per-tensor tensor."""
    ints, ones = ints.to(q.spec.dtype.storage), (1,) * ints.ndim
    scale, zero_point = q.scale.reshape(ones).clone(), q.zero_point.reshape(ones).clone()
    return QTensor.from_parts(ints, scale, zero_point, q.spec, q.dtype)


def wide(ints: Tensor) -> Tensor:
    """uint16, for which torch has few operators, as int32; anything else as it is."""
    return ints.to(torch.int32) if ints.dtype == torch.uint16 else ints


def steps_of(q: QTensor) -> Tensor:
    """q - zero_point as integers, whose sums are exact."""
    return q.ints.to(torch.int64) - spread(q.zero_point, q.shape)


def exact_values(q: QTensor, *beside: Any) -> Tensor:
    """The values before they are rounded to the dtype that q stands for.

    In float32, whose rounding is far below a step; in float64 where q, or an operand ``beside`` it,
    has codes of more than 16 bits, which a float32 cannot hold.
    """
    every = (q, *(operand for operand in beside if isinstance(operand, QTensor)))
    if all(operand.spec.dtype.bits <= 16 for operand in every):
        return q.floats(torch.float32)
    zero_point = spread(q.zero_point, q.shape).double()
    return (q.ints.double() - zero_point) * spread(q.scale, q.shape).double()


def place(dim: int, ndim: int) -> int:
    """A dimension counted from the front; a number has one, as torch counts."""
    return normalize_axis(dim, max(ndim, 1), "dim")


def axis_of(q: QTensor) -> int | None:
    """The axis that a view must follow: kept per channel, cut per group or token."""
    return special_axis(q.spec.granularity, q.ndim)


def kind_of(q: QTensor, dim: int) -> Kind:
    """What the scale does along one dimension."""
    return kinds(q.spec.granularity, q.shape)[dim] if q.ndim else Kind.SHARED


def group_size(q: QTensor) -> int:
    """The length of a run that shares a scale along a cut axis; 1 where there is none."""
    granularity = q.spec.granularity
    return granularity.size if isinstance(granularity, PerGroup) else 1


def torn(q: QTensor, dim: int, what: str) -> GranularityError:
    """The error for a view that would leave part of a run without its scale."""
    size = group_size(q)
    return GranularityError(
        f"{what} along axis {dim} would tear runs of {size} values that share a scale "
        f"({q.spec.granularity}): use multiples of {size}, or q.dequantize() first"
    )
