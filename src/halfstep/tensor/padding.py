"""Padding of quantized tensors: the border gets the code of the padding value."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import GranularityError
from halfstep.numerics import ops
from halfstep.numerics.affine import spread
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind, kinds
from halfstep.tensor.dispatch import operator
from halfstep.tensor.moves import group_size, rebuilt, wide
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


@operator(aten.constant_pad_nd.default)
def constant_pad(func: Any, q: QTensor, pad: Sequence[int], value: float = 0) -> Any:
    """A border of one value, or with negative widths a crop.

    The value takes the nearest code. New channels get scale 1, so only 0 can fill them.
    """
    if _grows_kept_axis(q, pad) and (value != 0 or q.spec.float_zero_point):
        return NotImplemented
    scale = aten.constant_pad_nd(q.scale, _qparam_pad(q, pad), 1.0)
    zero_point = aten.constant_pad_nd(q.zero_point, _qparam_pad(q, pad), q.spec.qmin)
    border = aten.constant_pad_nd(torch.zeros_like(q.ints, dtype=torch.bool), pad, True)
    fill = ops.quantize(
        torch.full_like(scale, value), scale, zero_point, q.spec.qmin, q.spec.qmax, q.ints.dtype
    )
    ints = torch.where(border, spread(fill, border.shape), _padded_codes(q.ints, pad))
    return rebuilt(q, ints, scale, zero_point, q.spec.granularity)


def _padded_codes(ints: Tensor, pad: Sequence[int]) -> Tensor:
    """Torch pads no uint16, so that goes by way of int32."""
    padded: Tensor = aten.constant_pad_nd(wide(ints), pad, 0)
    return padded.to(ints.dtype)


def _pairs(q: QTensor, pad: Sequence[int]) -> list[tuple[int, Kind, tuple[int, int]]]:
    """(dimension, kind, widths) of each padded dimension, the last first, as torch counts."""
    every = kinds(q.spec.granularity, q.ndim)
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
