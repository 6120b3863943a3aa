"""add, sub, mul, cat and scaling: the result stays quantized, within half a step of the exact value.

Where both operands share scale and zero point and the exact result has codes inside the format,
the result keeps them, and its integers are exact. Else the result's range gives new ones.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentTypeError
from halfstep.numerics import ops
from halfstep.numerics.affine import unclamped_codes
from halfstep.numerics.checks import Qparam, resolve_qparams
from halfstep.numerics.ranges import qparams_for_values
from halfstep.spec import PerTensor, QSpec
from halfstep.tensor.axes import Kind
from halfstep.tensor.dispatch import operator, to_float
from halfstep.tensor.qtensor import QTensor
from halfstep.tensor.views import axis_of, kind_of, rebuilt

aten = torch.ops.aten


def quantized_like(value: Tensor, operands: Sequence[QTensor]) -> QTensor:
    """Quantize a result: with the operands' qparams where all share them and it fits, else anew."""
    dtype = functools.reduce(torch.promote_types, (q.dtype for q in operands))
    spec = result_spec(operands, value)
    shape = spec.granularity.scale_shape(tuple(value.shape))
    floats = value.float()
    scale, zero_point = qparams_for_values(floats, spec, nan="ignore")
    if all(_alike(spec, shape, q) for q in operands):
        scale, zero_point = _kept_where_it_fits(floats, spec, operands, (scale, zero_point))
    ints = ops.quantize(floats, scale, zero_point, spec.qmin, spec.qmax, spec.dtype.storage)
    return QTensor.from_parts(ints, scale, zero_point, spec, dtype)


def _kept_where_it_fits(
    floats: Tensor, spec: QSpec, operands: Sequence[QTensor], fitted: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The first operand's qparams if all have them and no code is clamped, else the fitted ones.

    A choice by ``where``, not by ``if``: the same under ``torch.compile``, which sees no values.
    """
    scale, zero_point = operands[0].qparams()
    shared = torch.ones((), dtype=torch.bool, device=floats.device)
    for q in operands[1:]:
        shared = shared & (q.scale == scale).all() & (q.zero_point == zero_point).all()
    lo, hi = ops.min_max(floats, scale.shape)
    low = unclamped_codes(lo, scale, zero_point, exact=True)
    high = unclamped_codes(hi, scale, zero_point, exact=True)
    keep = shared & (low >= spec.qmin).all() & (high <= spec.qmax).all()
    return torch.where(keep, scale, fitted[0]), torch.where(keep, zero_point, fitted[1])


def _alike(spec: QSpec, shape: tuple[int, ...], q: QTensor) -> bool:
    return q.spec == spec and tuple(q.scale.shape) == shape


def result_spec(operands: Sequence[QTensor], value: Tensor) -> QSpec:
    """The widest operand's format, on an axis that the result still has."""
    widest = max(operands, key=lambda q: q.spec.dtype.bits).spec
    for q in operands:
        fits = q.ndim == value.ndim and _has_axis(q, value)
        if fits and not isinstance(q.spec.granularity, PerTensor):
            return widest.with_granularity(q.spec.granularity)
    return widest.with_granularity(PerTensor())


def _has_axis(q: QTensor, value: Tensor) -> bool:
    axis = axis_of(q)
    return axis is None or q.shape[axis] == value.shape[axis]


def _quantized(args: Sequence[Any]) -> list[QTensor]:
    return [arg for arg in args if isinstance(arg, QTensor)]


def _exact(q: Any) -> Any:
    """The float32 values, so that a result is rounded to a step once, not first to float16."""
    return q.exact_values() if isinstance(q, QTensor) else q


@operator(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor)
def elementwise(func: Any, first: Any, second: Any, **kwargs: Any) -> Any:
    """Sum, difference or product of two quantized tensors, or of one and a number."""
    if any(
        isinstance(arg, Tensor) and not isinstance(arg, QTensor) and arg.ndim
        for arg in (first, second)
    ):
        return NotImplemented
    operands = _quantized((first, second))
    if len(operands) == 1 and func is aten.mul.Tensor and not isinstance(second, Tensor):
        return scaled(operands[0], second)
    return quantized_like(func(_exact(first), _exact(second), **kwargs), operands)


@operator(aten.rsub.Tensor, aten.rsub.Scalar)
def reversed_sub(func: Any, first: Any, second: Any, alpha: float = 1) -> Any:
    """second - alpha * first."""
    if isinstance(second, Tensor) and not isinstance(second, QTensor) and second.ndim:
        return NotImplemented
    value = func(_exact(first), _exact(second), alpha=alpha)
    return quantized_like(value, _quantized((first, second)))


@operator(aten.div.Tensor)
def divide(func: Any, q: Any, divisor: Any) -> Any:
    """By a number: the integers stay, the scale is divided. Anything else runs on floats."""
    if isinstance(divisor, Tensor) or not isinstance(q, QTensor):
        return NotImplemented
    return _rescaled(q, q.scale / divisor) if divisor > 0 else NotImplemented


@operator(aten.neg.default)
def negate(func: Any, q: QTensor) -> QTensor:
    """-x, refitted: the codes of an asymmetric format are not symmetric about zero."""
    return quantized_like(-_exact(q), [q])


def scaled(q: QTensor, factor: float) -> QTensor:
    """Times a number: the integers stay, the scale is multiplied; refitted for a factor <= 0."""
    kept = _rescaled(q, q.scale * factor) if factor > 0 else NotImplemented
    return quantized_like(_exact(q) * factor, [q]) if kept is NotImplemented else kept


def _rescaled(q: QTensor, scale: Tensor) -> Any:
    """The same integers under another scale, unless it leaves the range of allowed scales."""
    clamped = scale.clamp(2.0**-126, torch.finfo(torch.float32).max)
    return QTensor.from_parts(q.ints, clamped, q.zero_point, q.spec, q.dtype)


@operator(aten.cat.default)
def cat(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Along the channel axis each part keeps its scales; elsewhere as for a sum."""
    operands = _quantized(tensors)
    if len(operands) != len(tensors):
        return NotImplemented
    at, first = dim % max(operands[0].ndim, 1), operands[0]
    kept = axis_of(first) is not None and kind_of(first, at) is not Kind.SHARED
    if kept and all(q.spec == first.spec and q.dtype == first.dtype for q in operands):
        parts = (
            func([part(q) for q in operands], at)
            for part in (lambda q: q.ints, lambda q: q.scale, lambda q: q.zero_point)
        )
        ints, scale, zero_point = parts
        return rebuilt(first, ints, scale, zero_point, first.spec.granularity)
    return quantized_like(func([_exact(q) for q in operands], dim), operands)


@operator(aten.stack.default)
def stack(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors side by side along a new dimension."""
    if len(_quantized(tensors)) != len(tensors):
        return NotImplemented
    return aten.cat.default([aten.unsqueeze.default(q, dim) for q in tensors], dim)


# The verbs that take the result's qparams.


def add(
    first: Tensor, second: Tensor, *, scale: Qparam, zero_point: Qparam | None = None
) -> QTensor:
    """first + second, quantized with the given scale and zero point.

        q = clamp(rne((a + b) / scale) + zero_point, qmin, qmax)

    The format is the operands' (the wider, on the axis that the result has). Raises
    ``ArgumentTypeError`` where neither is quantized, ``ArgumentError`` for qparams that do not fit.

    >>> import halfstep as hs, torch
    >>> a = hs.quantize(torch.tensor([1.0, 2.0]), hs.int8, scale=0.5, zero_point=0)
    >>> hs.add(a, a, scale=1.0, zero_point=0).int_repr()
    tensor([2, 4], dtype=torch.int8)
    """
    return _with_qparams(torch.add, first, second, scale, zero_point)


def mul(
    first: Tensor, second: Tensor, *, scale: Qparam, zero_point: Qparam | None = None
) -> QTensor:
    """first * second, quantized with the given scale and zero point.

        q = clamp(rne((a * b) / scale) + zero_point, qmin, qmax)

    Format and errors as for ``add``.

    >>> import halfstep as hs, torch
    >>> a = hs.quantize(torch.tensor([1.0, 2.0]), hs.int8, scale=0.5, zero_point=0)
    >>> hs.mul(a, a, scale=0.5, zero_point=0).int_repr()
    tensor([2, 8], dtype=torch.int8)
    """
    return _with_qparams(torch.mul, first, second, scale, zero_point)


def _with_qparams(
    func: Any, first: Tensor, second: Tensor, scale: Qparam, zero_point: Qparam | None
) -> QTensor:
    operands = _quantized((first, second))
    if not operands:
        raise ArgumentTypeError(
            f"neither operand is a QTensor ({type(first).__name__} and {type(second).__name__}): "
            "quantize one with hs.quantize first"
        )
    value = func(to_float(_exact(first)), to_float(_exact(second)))
    spec = result_spec(operands, value)
    step, offset = resolve_qparams(value.shape, spec, scale, zero_point, value.device)
    ints = ops.quantize(value, step, offset, spec.qmin, spec.qmax, spec.dtype.storage)
    return QTensor.from_parts(ints, step, offset, spec, operands[0].dtype)
