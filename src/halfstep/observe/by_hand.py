"""Ranges that a person sets: numbers, one value for each channel, or the shape of scale.

Before any data the number of dimensions is unknown. A range for all channels is then kept with
shape (), one for each of C channels with shape (C,), and both are put in place by the first batch.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError
from halfstep.spec import Granularity, PerChannel, PerTensor

Bound: TypeAlias = float | Sequence[float] | Tensor
Shape: TypeAlias = tuple[int, ...]


def checked_range(
    lo: Bound, hi: Bound, granularity: Granularity, seen: Shape
) -> tuple[Tensor, Tensor]:
    """(lo, hi) as float32 of one shape; ``seen`` is the shape of scale so far, (0,) before data."""
    low, high = torch.broadcast_tensors(_as_float32(lo, "lo"), _as_float32(hi, "hi"))
    wrong = low > high
    if bool(wrong.any()):
        at = int(wrong.flatten().nonzero()[0])
        raise ArgumentError(
            f"lo={low.flatten()[at].item():g} is above hi={high.flatten()[at].item():g}"
            f"{f' at position {at}' if low.numel() > 1 else ''}: give lo <= hi"
        )
    shape = _kept_shape(tuple(low.shape), granularity)
    if math.prod(seen):
        check_range_fits(shape, seen, granularity, "the data seen")
    return low.reshape(shape), high.reshape(shape)


def _as_float64(value: Bound) -> Tensor | None:
    """The value as a tensor; None for what is no number, or would lose its imaginary part."""
    try:
        is_complex = torch.as_tensor(value).is_complex()
        return None if is_complex else torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        return None


def _as_float32(value: Bound, name: str) -> Tensor:
    given = _as_float64(value)
    if given is None:
        raise ArgumentTypeError(
            f"{name}={value!r} is not a real number, a list of them or a tensor"
        )
    bad = ~given.float().isfinite()
    if bool(bad.any()):
        raise ArgumentError(
            f"{name}={given[bad][0].item():g} is not finite in float32: a range has two finite ends"
        )
    return given.float()


def _kept_shape(shape: Shape, granularity: Granularity) -> Shape:
    """The shape in which a range is kept until data come; an error for one that cannot fit."""
    count = math.prod(shape)
    if count == 1:
        return ()
    if isinstance(granularity, PerTensor) or count == 0:
        raise ArgumentError(
            f"{count} ranges, but per-tensor quantization has one: give numbers, or observe with "
            "PerChannel(axis)"
        )
    if not isinstance(granularity, PerChannel) or len(shape) == 1:
        return shape
    if granularity.scale_shape(shape) != shape:
        raise GranularityError(
            f"a range of shape {shape} does not lie along axis {granularity.axis}: every other "
            "size must be 1, or give one value for each channel as a list"
        )
    return (count,)


def check_range_fits(hand: Shape, scale: Shape, granularity: Granularity, what: str) -> None:
    """Refuse a range kept with shape ``hand`` for scales of shape ``scale``."""
    per_channel = isinstance(granularity, PerChannel)
    if hand in {(), (0,), scale}:
        return
    if per_channel and hand == (math.prod(scale),):
        return
    kept = f"axis {granularity.axis} of {what} has {math.prod(scale)} channels"
    raise GranularityError(
        f"{math.prod(hand)} ranges were set, but {kept}: give one for each, or one number"
        if per_channel
        else f"ranges of shape {hand} were set, but {granularity} of {what} needs {scale}"
    )


def in_place(value: Tensor, scale: Shape) -> Tensor:
    """A range kept before data, in the shape of scale; as it is while that is unknown."""
    if not math.prod(scale):
        return value
    return value.expand(scale) if value.ndim == 0 else value.reshape(scale)
