"""What becomes of a granularity when dimensions move: pure functions on shapes.

Each dimension of a quantized tensor is *shared* (one scale for all its indices), *kept* (one for
each) or *cut* (one for each run). Per token shares the last dimension and keeps the others; so does
per group with its axis where that is one run, which is why a part of it is one run again.
"""

import math
from enum import Enum
from typing import TypeAlias

from halfstep.errors import GranularityError
from halfstep.spec import Granularity, PerChannel, PerGroup, PerTensor, PerToken

Shape: TypeAlias = tuple[int, ...]


class Kind(Enum):
    """What a scale does along one dimension."""

    SHARED = "shared"
    KEPT = "kept"
    CUT = "cut"


def kinds(granularity: Granularity, shape: Shape) -> list[Kind]:
    """The kind of each dimension."""
    if isinstance(granularity, PerTensor):
        return [Kind.SHARED] * len(shape)
    if isinstance(granularity, PerChannel):
        return [Kind.KEPT if dim == granularity.axis else Kind.SHARED for dim in range(len(shape))]
    axis, _ = _cut(granularity, shape)
    special = Kind.SHARED if _is_one_run(granularity, shape) else Kind.CUT
    return [special if dim == axis else Kind.KEPT for dim in range(len(shape))]


def _is_one_run(granularity: PerGroup | PerToken, shape: Shape) -> bool:
    return isinstance(granularity, PerToken) or shape[granularity.axis] == granularity.size


def special_axis(granularity: Granularity, ndim: int) -> int | None:
    """The kept axis per channel, the cut axis per group or token, None per tensor."""
    if isinstance(granularity, PerToken):
        return ndim - 1
    return granularity.axis


def moved(
    granularity: Granularity, shape: Shape, axis: int | None, new_shape: Shape
) -> Granularity:
    """The granularity after a view that took its axis to ``axis`` (None: the axis is gone)."""
    if isinstance(granularity, PerTensor):
        return granularity
    if isinstance(granularity, PerChannel):
        return PerTensor() if axis is None else PerChannel(axis)
    if axis is None:
        return _all_kept(len(new_shape))
    if isinstance(granularity, PerToken) and axis == len(new_shape) - 1:
        return granularity
    _, size = _cut(granularity, shape)
    # int: while a program is traced with dynamic shapes, a run's length is fixed by the format.
    return PerGroup(axis, int(max(new_shape[axis], 1) if _is_one_run(granularity, shape) else size))


def _all_kept(ndim: int) -> Granularity:
    """One scale for every element."""
    if ndim < 2:
        return PerChannel(0) if ndim else PerTensor()
    return PerGroup(ndim - 1, 1)


def reshaped(granularity: Granularity, shape: Shape, new_shape: Shape) -> Granularity:
    """The granularity after a reshape, which keeps the elements' order.

    Raises ``GranularityError`` where the channel axis would be merged or cut, or a group torn.
    """
    if isinstance(granularity, PerTensor):
        return granularity
    if isinstance(granularity, PerChannel):
        axis = _surviving_axis(shape, granularity.axis, new_shape)
        if axis is not None:
            return PerChannel(axis)
        if shape[granularity.axis] == 1 and 0 not in shape:
            return PerTensor()
        raise _merged(granularity, shape, new_shape)
    old_axis, size = _cut(granularity, shape)
    after = math.prod(shape[old_axis + 1 :])
    for axis in reversed(range(len(new_shape))):
        fits = new_shape[axis] % size == 0 and (new_shape[axis] or not shape[old_axis])
        if fits and math.prod(new_shape[axis + 1 :]) == after:
            is_row = axis == len(new_shape) - 1 and new_shape[axis] == shape[old_axis]
            is_token = is_row and isinstance(granularity, PerToken)
            found = PerToken() if is_token else PerGroup(axis, int(size))
            if _count(found, new_shape) == _count(granularity, shape):
                return found
    raise _merged(granularity, shape, new_shape)


def _count(granularity: Granularity, shape: Shape) -> int:
    """How many scales there are."""
    return math.prod(granularity.scale_shape(shape))


def _cut(granularity: PerGroup | PerToken, shape: Shape) -> tuple[int, int]:
    """The axis that is cut, and the length of a run."""
    if isinstance(granularity, PerGroup):
        return granularity.axis, granularity.size
    return len(shape) - 1, max(shape[-1], 1)


def _surviving_axis(shape: Shape, axis: int, new_shape: Shape) -> int | None:
    """The dimension of the new shape that has the same indices as ``axis`` had."""
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    found = [
        new
        for new, size in enumerate(new_shape)
        if size == shape[axis]
        and math.prod(new_shape[:new]) == before
        and math.prod(new_shape[new + 1 :]) == after
    ]
    return min(found, key=lambda new: abs(new - axis), default=None)


def _merged(granularity: Granularity, shape: Shape, new_shape: Shape) -> GranularityError:
    axis = special_axis(granularity, len(shape))
    what = (
        f"channel axis {axis}, which has {shape[axis or 0]} scales"
        if isinstance(granularity, PerChannel)
        else f"axis {axis}, whose runs share a scale"
    )
    return GranularityError(
        f"a view from {tuple(shape)} to {tuple(new_shape)} would merge or cut {what} "
        f"({granularity}): keep that axis whole, or reshape q.dequantize()"
    )
