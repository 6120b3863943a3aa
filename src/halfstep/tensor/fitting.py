"""The scale and zero point of a result, so that it is within half a step of the exact value.

Where all operands share scale and zero point, and the exact result has codes inside the format,
the result keeps them, and its integers are exact. Else the result's own range gives new ones.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from halfstep.numerics import ops
from halfstep.numerics.affine import nan_error, spread, unclamped_codes
from halfstep.numerics.blocks import block_dims, block_view
from halfstep.numerics.checks import has_values
from halfstep.numerics.ranges import qparams_for_range, qparams_for_values
from halfstep.spec import Granularity, PerGroup, PerTensor, PerToken, QSpec
from halfstep.tensor.moves import axis_of, wide
from halfstep.tensor.qtensor import QTensor

Qparams: TypeAlias = tuple[Tensor, Tensor]


def fitted(value: Tensor, operands: Sequence[QTensor], codes: Tensor | None = None) -> QTensor:
    """Quantize a result: with the operands' own qparams where it can, else with new ones.

    value: the result as floats; float64 is kept so until it is rounded to a step.
    codes: the result's codes under qparams that all operands share, before clamping, where
        integers give them exactly; otherwise value gives them.
    """
    spec, dtype = result_spec(operands, value.shape), result_dtype(operands)
    shape = spec.granularity.scale_shape(tuple(value.shape))
    given = [_aligned(q, value.ndim) for q in operands]
    alike = all(result_spec([q], value.shape) == spec for q in operands)
    if not alike or any(tuple(scale.shape) != shape for scale, _ in given):
        return _refitted(value, spec, dtype)
    keep, ints = _under_shared(value, spec, given, codes)
    scale, zero_point = (qparam.clone() for qparam in given[0])
    if not has_values(keep):  # a choice by ``where``: a traced program sees no values
        new = _refitted(value, spec, dtype)
        ints = torch.where(keep, wide(ints), wide(new.ints)).to(ints.dtype)
        scale = torch.where(keep, scale, new.scale)
        zero_point = torch.where(keep, zero_point, new.zero_point)
    elif not keep:
        return _refitted(value, spec, dtype)
    return QTensor.from_parts(ints, scale, zero_point, spec, dtype)


def _aligned(q: QTensor, ndim: int) -> Qparams:
    """Scale and zero point with the leading dimensions that broadcasting adds."""
    new = (None,) * (ndim - q.ndim) + (...,)
    return q.scale[new], q.zero_point[new]


def _refitted(value: Tensor, spec: QSpec, dtype: torch.dtype) -> QTensor:
    """The value under qparams from its own range."""
    if spec.dtype.bits > 16:
        scale, zero_point = _wide_qparams(value, spec)
    else:
        scale, zero_point = qparams_for_values(value, spec, nan="ignore")
    ints = codes_of(value, scale, zero_point, spec)
    return QTensor.from_parts(ints, scale, zero_point, spec, dtype)


def codes_of(
    value: Tensor, scale: Tensor, zero_point: Tensor, spec: QSpec, *, check_nan: bool = False
) -> Tensor:
    """``quantize``, whose formula is float32's, of float32 values; the same in float64 of others.

    NaN counts as 0, or raises ``NonFiniteError`` where it is checked and can be looked at.
    """
    if value.dtype != torch.float64:
        storage = spec.dtype.storage
        return ops.quantize(value, scale, zero_point, spec.qmin, spec.qmax, storage, check_nan)
    nan = value.isnan()
    if check_nan and has_values(nan) and bool(nan.any()):
        raise nan_error(value)
    codes = _float64_codes(value.masked_fill(nan, 0.0), scale, zero_point)
    return torch.empty_like(value, dtype=spec.dtype.storage).copy_(
        codes.clamp(spec.qmin, spec.qmax)
    )


def _float64_codes(value: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """The codes of float64 values before clamping, as float64; NaN stays NaN."""
    scaled, offset = value / spread(scale, value.shape), spread(zero_point, value.shape)
    return (scaled + offset).round() if offset.is_floating_point() else scaled.round() + offset


def _wide_qparams(value: Tensor, spec: QSpec) -> Qparams:
    """Qparams of the finite values' range in float64, so wide that a rounded scale still holds it.

    A float32 scale is off by up to 2^-24 of itself, which after 2^32 steps is 256 of them.
    """
    shape, dims = spec.granularity.scale_shape(tuple(value.shape)), block_dims(value.ndim)
    if value.numel() == 0:
        return qparams_for_range(*(value.new_zeros(shape, dtype=torch.float64),) * 2, spec)
    infinite, slack = ~value.isfinite(), 1 + 2.0**-23
    lo = block_view(value.double().masked_fill(infinite, math.inf), shape).amin(dims)
    hi = block_view(value.double().masked_fill(infinite, -math.inf), shape).amax(dims)
    empty = lo > hi
    lo, hi = lo.masked_fill(empty, 0.0) * slack, hi.masked_fill(empty, 0.0) * slack
    return qparams_for_range(lo, hi, spec)


def _under_shared(
    value: Tensor, spec: QSpec, given: Sequence[Qparams], codes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Whether the first operand's qparams are everyone's and hold the result; its codes then."""
    scale, zero_point = given[0]
    keep = torch.ones((), dtype=torch.bool, device=value.device)
    for other, offset in given[1:]:
        keep = keep & (other == scale).all() & (offset == zero_point).all()
    if codes is None and value.dtype == torch.float64:
        codes = _float64_codes(value, scale, zero_point)
    if codes is not None:
        keep = keep & ((codes >= spec.qmin) & (codes <= spec.qmax)).all()
        ints = torch.empty_like(value, dtype=spec.dtype.storage)
        return keep, ints.copy_(codes.clamp(spec.qmin, spec.qmax))
    lo, hi = ops.min_max(value, scale.shape)
    low = unclamped_codes(lo, scale, zero_point, exact=True)
    high = unclamped_codes(hi, scale, zero_point, exact=True)
    keep = keep & (low >= spec.qmin).all() & (high <= spec.qmax).all()
    return keep, codes_of(value, scale, zero_point, spec)


def result_dtype(operands: Sequence[QTensor]) -> torch.dtype:
    """The float dtype that a result of these operands stands for."""
    return functools.reduce(torch.promote_types, (q.dtype for q in operands))


def result_spec(operands: Sequence[QTensor], shape: Sequence[int]) -> QSpec:
    """The widest operand's format, on the first axis that the result still has."""
    widest = max(operands, key=lambda q: q.spec.dtype.bits).spec
    carried = (granularity for q in operands if (granularity := _carried(q, shape)) is not None)
    return widest.with_granularity(next(carried, PerTensor()))


def _carried(q: QTensor, shape: Sequence[int]) -> Granularity | None:
    """An operand's granularity in a result that it is broadcast to; None where it has no axis."""
    granularity, axis, new = q.spec.granularity, axis_of(q), len(shape) - q.ndim
    if axis is None or isinstance(granularity, PerTensor):
        return None
    if isinstance(granularity, PerToken):
        return granularity
    if isinstance(granularity, PerGroup) and shape[axis + new] % granularity.size:
        return None
    return replace(granularity, axis=axis + new)
