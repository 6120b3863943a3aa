"""Operators that need only the order of values: they run on the integers and are exact.

Comparisons and reductions that look at values across scales use the floats, which is exact too:
the floats are what a quantized tensor means.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.numerics.affine import spread, steps_from_zero
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind, kinds
from halfstep.tensor.dispatch import operator, to_float
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


def _wide(ints: Tensor) -> Tensor:
    """Integers in a dtype in which every torch operator works."""
    return ints.to(torch.int32) if ints.dtype == torch.uint16 else ints


def _clamped(q: QTensor, low: Tensor | None, high: Tensor | None) -> QTensor:
    """Clamp codes; the bounds are codes of scale's shape."""
    low, high = (None if b is None else spread(b, q.shape) for b in (low, high))
    ints = q.ints.to(torch.int64).clamp(low, high)
    return q.like(torch.empty_like(q.ints).copy_(ints))


def _code(q: QTensor, value: float) -> Tensor:
    """The code nearest to a number, for each scale, inside the format's bounds."""
    codes = (value / q.scale.double()).round() + q.zero_point
    return codes.clamp(q.spec.qmin, q.spec.qmax).to(torch.int64)


@operator(aten.relu.default)
def relu(func: Any, q: QTensor) -> Any:
    """max(x, 0): no code below the zero point. Floats where zero has no code."""
    if q.spec.float_zero_point:
        return NotImplemented
    return _clamped(q, q.zero_point.to(torch.int64), None)


@operator(aten.clamp.default, aten.hardtanh.default, aten.clamp_min.default, aten.clamp_max.default)
def clamp(func: Any, q: QTensor, *bounds: Any, **named: Any) -> Any:
    """Clamp to numbers, each rounded to its nearest code."""
    if q.spec.float_zero_point:
        return NotImplemented
    low = named.get("min", named.get("min_val", bounds[0] if bounds else None))
    high = named.get("max", named.get("max_val", bounds[1] if len(bounds) > 1 else None))
    if func is aten.hardtanh.default:
        low, high = (-1.0 if low is None else low), (1.0 if high is None else high)
    if func is aten.clamp_max.default:
        low, high = None, low
    return _clamped(q, *(None if bound is None else _code(q, bound) for bound in (low, high)))


@operator(
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
def max_pool(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """The greatest code of each window, where no scale changes inside one; floats otherwise."""
    spatial = 3 if "3d" in func._schema.name else 2
    if any(kind is not Kind.SHARED for kind in kinds(q.spec.granularity, q.ndim)[-spatial:]):
        return NotImplemented
    floats = q.ints.double() if q.spec.dtype.bits > 16 else q.ints.float()
    values, indices = func(floats, *args, **kwargs)
    return q.like(values.to(q.ints.dtype)), indices


@operator(aten.max.default, aten.min.default)
def extreme(func: Any, q: QTensor) -> Any:
    """The greatest or least value, as a quantized tensor of no dimensions; floats across scales."""
    if not isinstance(q.spec.granularity, PerTensor):
        return NotImplemented
    return _scalar(q, func(_wide(q.ints)))


def _scalar(q: QTensor, ints: Tensor) -> QTensor:
    ints = ints.to(q.ints.dtype)
    shape = (1,) * ints.ndim
    scale, zero_point = q.scale.reshape(shape), q.zero_point.reshape(shape)
    return QTensor.from_parts(ints, scale, zero_point, q.spec, q.dtype)


@operator(aten.max.dim, aten.min.dim, aten.sort.default, aten.sort.stable, aten.topk.default)
def ordered(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """Values and indices along a dimension, per tensor on the integers, else on the floats."""
    if not isinstance(q.spec.granularity, PerTensor):
        return NotImplemented
    values, indices = func(_wide(q.ints), *args, **kwargs)
    return _scalar(q, values), indices


@operator(aten.amax.default, aten.amin.default)
def reduced_extreme(func: Any, q: QTensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """The greatest or least value along dimensions, per tensor on the integers, else on floats."""
    if not isinstance(q.spec.granularity, PerTensor):
        return NotImplemented
    return _scalar(q, func(_wide(q.ints), dim, keepdim))


@operator(aten.argmax.default, aten.argmin.default, aten.argsort.default, aten.argsort.stable)
def position(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """Where the greatest or least value is."""
    codes = _wide(q.ints) if isinstance(q.spec.granularity, PerTensor) else q.dequantize()
    return func(codes, *args, **kwargs)


@operator(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)
def total(func: Any, q: QTensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """sum (q - zero_point), exact, times scale; floats where a scale changes along the sum."""
    dims = range(q.ndim) if dim is None or dim == [] else [d % max(q.ndim, 1) for d in dim]
    if any(kinds(q.spec.granularity, q.ndim)[d] is not Kind.SHARED for d in dims if q.ndim):
        return NotImplemented
    if q.spec.float_zero_point or kwargs.get("dtype") is not None:
        return NotImplemented
    steps = steps_from_zero(q.ints, q.zero_point).double()
    exact = func(steps, list(dims), keepdim) if func in _BY_DIM else func(steps)
    scale = q.scale.double()
    scale = scale.sum(list(dims), keepdim) if func in _BY_DIM else scale.reshape(())
    return (exact * scale).to(q.dtype)


_BY_DIM = (aten.sum.dim_IntList, aten.mean.dim)


@operator(
    *(
        getattr(getattr(aten, op), kind)
        for op in "eq ne lt le gt ge".split()
        for kind in ("Scalar", "Tensor")
    ),
    aten.isnan.default,
    aten.isinf.default,
)
def compare(func: Any, *args: Any) -> Tensor:
    """Comparison of the values that the integers stand for."""
    result: Tensor = func(*(to_float(arg) for arg in args))
    return result


@operator(aten.equal.default)
def equal(func: Any, first: Any, second: Any) -> bool:
    """Two quantized tensors: the same format, scales and integers; with a float one: the same values."""
    if not (isinstance(first, QTensor) and isinstance(second, QTensor)):
        return torch.equal(to_float(first), to_float(second))
    if first.spec != second.spec or first.shape != second.shape:
        return False
    pairs = zip((first.ints, *first.qparams()), (second.ints, *second.qparams()), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@operator(aten._local_scalar_dense.default)
def item(func: Any, q: QTensor) -> float:
    """The float that a single element stands for."""
    return float(q.dequantize().item())
