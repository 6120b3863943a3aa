"""Padding of quantized tensors: the border gets the code of the padding value."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import GranularityError
from halfstep.numerics.affine import spread
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind, kinds, moved
from halfstep.tensor.dispatch import operator
from halfstep.tensor.fitting import fitted
from halfstep.tensor.moves import axis_of, exact_values, group_size, rebuilt, wide
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


@operator(aten.constant_pad_nd.default)
def constant_pad(func: Any, q: QTensor, pad: Sequence[int], value: float = 0) -> Any:
    """A border of one value, or with negative widths a crop.

    The value takes the nearest code; where it has none, the result gets new scales. New channels
    get scale 1, so only 0 can fill them.
    """
    grows = max(pad, default=0) > 0
    if grows and (q.spec.float_zero_point or not math.isfinite(value)):
        return NotImplemented
    if grows and value != 0:
        return NotImplemented if _grows_kept_axis(q, pad) else _filled(q, pad, value)
    scale = aten.constant_pad_nd(q.scale, _qparam_pad(q, pad), 1.0)
    zero_point = aten.constant_pad_nd(q.zero_point, _qparam_pad(q, pad), q.spec.qmin)
    codes = aten.constant_pad_nd(wide(q.ints), pad, 0)
    if grows:
        codes = torch.where(_border(q, pad), spread(zero_point, codes.shape).to(codes.dtype), codes)
    granularity = moved(q.spec.granularity, q.shape, axis_of(q), codes.shape)
    return rebuilt(q, codes.to(q.ints.dtype), scale, zero_point, granularity)


def _filled(q: QTensor, pad: Sequence[int], value: float) -> QTensor:
    """A border of a value other than 0, along dimensions that share their scale."""
    codes, border = aten.constant_pad_nd(q.ints.double(), pad, 0), _border(q, pad)
    fill = (value / q.scale.double()).round() + q.zero_point
    codes = torch.where(border, spread(fill, codes.shape), codes)
    return fitted(aten.constant_pad_nd(exact_values(q), pad, value), [q], codes)


def _border(q: QTensor, pad: Sequence[int]) -> Tensor:
    """Where the padded tensor has no element of q."""
    inside = torch.zeros(q.shape, dtype=torch.bool, device=q.device)
    border: Tensor = aten.constant_pad_nd(inside, pad, True)
    return border


def _pairs(q: QTensor, pad: Sequence[int]) -> list[tuple[int, Kind, tuple[int, int]]]:
    """(dimension, kind, widths) of each padded dimension, the last first, as torch counts."""
    every = kinds(q.spec.granularity, q.shape)
    dims = range(q.ndim - 1, q.ndim - 1 - len(pad) // 2, -1)
    return [(dim, every[dim], (pad[2 * i], pad[2 * i + 1])) for i, dim in enumerate(dims)]


def _grows_kept_axis(q: QTensor, pad: Sequence[int]) -> bool:
    if isinstance(q.spec.granularity, PerTensor):
        return False
    return any(kind is not Kind.SHARED and max(widths) > 0 for _, kind, widths in _pairs(q, pad))


def _qparam_pad(q: QTensor, pad: Sequence[int]) -> list[int]:
    """How scale and zero point are padded: like a kept axis, by whole groups along a cut one."""
    widths: list[int] = []
    for dim, kind, (before, after) in _pairs(q, pad):
        group = group_size(q) if kind is Kind.CUT else 1
        if before % group or after % group:
            raise GranularityError(
                f"padding axis {dim} by ({before}, {after}) would tear runs of {group} values that "
                f"share a scale ({q.spec.granularity}): pad by multiples, or pad q.dequantize()"
            )
        widths += [0, 0] if kind is Kind.SHARED else [before // group, after // group]
    return widths
