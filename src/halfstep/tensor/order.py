"""Operators that need only the order of values: they run on the integers and are exact.

Comparisons and reductions that look at values across scales use the floats, which is exact too:
the floats are what a quantized tensor means.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.numerics.affine import spread
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind
from halfstep.tensor.dispatch import operator
from halfstep.tensor.fitting import fitted
from halfstep.tensor.moves import exact_values, kind_of, per_tensor, place, steps_of, wide
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten
Number = int | float


def _floats(value: Any) -> Any:
    return value.floats() if isinstance(value, QTensor) else value


def _is_per_tensor(q: QTensor) -> bool:
    return isinstance(q.spec.granularity, PerTensor)


@operator(aten.relu.default)
def relu(func: Any, q: QTensor) -> Any:
    """max(x, 0): no code below the zero point. Floats where zero has no code."""
    if q.spec.float_zero_point:
        return NotImplemented
    ints = wide(q.ints)
    zero = spread(q.zero_point.to(ints.dtype), q.shape)
    return q.like(torch.maximum(ints, zero).to(q.ints.dtype))


@operator(aten.clamp.default)
def clamp(func: Any, q: QTensor, min: Number | None = None, max: Number | None = None) -> Any:  # noqa: A002 (aten's names)
    """Clamp to numbers, each rounded to its nearest code; refitted where the format has none."""
    given = [bound for bound in (min, max) if bound is not None]
    if q.spec.float_zero_point or any(math.isnan(bound) for bound in given):
        return NotImplemented
    codes = q.ints.double()
    if min is not None:
        codes = torch.maximum(codes, _code(q, min))
    if max is not None:
        codes = torch.minimum(codes, _code(q, max))
    return fitted(func(exact_values(q), min, max), [q], codes)


def _code(q: QTensor, value: Number) -> Tensor:
    """The code nearest to a number, whether or not the format has it."""
    return spread((value / q.scale.double()).round() + q.zero_point, q.shape)


@operator(aten.clamp_min.default)
def clamp_min(func: Any, q: QTensor, bound: Number) -> Any:
    """No value below a number."""
    return clamp(aten.clamp.default, q, bound, None)


@operator(aten.clamp_max.default)
def clamp_max(func: Any, q: QTensor, bound: Number) -> Any:
    """No value above a number."""
    return clamp(aten.clamp.default, q, None, bound)


@operator(aten.hardtanh.default)
def hardtanh(func: Any, q: QTensor, min_val: Number = -1, max_val: Number = 1) -> Any:
    """Clamp to [-1, 1] or other bounds; relu6 is the one to [0, 6]."""
    return clamp(aten.clamp.default, q, min_val, max_val)


@operator(
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)
def max_pool(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """The greatest code of each window, where no scale changes inside one; floats otherwise."""
    spatial = 3 if "3d" in func._schema.name else 2
    windowed = range(max(q.ndim - spatial, 0), q.ndim)
    if any(kind_of(q, dim) is not Kind.SHARED for dim in windowed):
        return NotImplemented
    floats = q.ints.double() if q.spec.dtype.bits > 16 else q.ints.float()
    values, indices = func(floats, *args, **kwargs)
    return q.like(values.to(q.ints.dtype)), indices


@operator(aten.max.default, aten.min.default, aten.amax.default, aten.amin.default)
def extreme(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """The greatest or least value, per tensor on the integers, across scales on the floats."""
    if not _is_per_tensor(q):
        return NotImplemented
    return per_tensor(q, func(wide(q.ints), *args, **kwargs))


@operator(aten.max.dim, aten.min.dim, aten.sort.default, aten.sort.stable, aten.topk.default)
def ordered(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """Values and indices along a dimension, per tensor on the integers, else on the floats."""
    if not _is_per_tensor(q):
        return NotImplemented
    values, indices = func(wide(q.ints), *args, **kwargs)
    return per_tensor(q, values), indices


@operator(aten.argmax.default, aten.argmin.default, aten.argsort.default, aten.argsort.stable)
def position(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Any:
    """Where the greatest or least value is, or the order of all."""
    return func(wide(q.ints) if _is_per_tensor(q) else q.floats(), *args, **kwargs)


@operator(aten.sum.default, aten.mean.default)
def total(func: Any, q: QTensor, *, dtype: torch.dtype | None = None) -> Any:
    """sum (q - zero_point), exact, times scale; floats where there are several scales."""
    if not _is_per_tensor(q) or q.spec.float_zero_point or dtype is not None:
        return NotImplemented
    steps = steps_of(q).double()
    return (func(steps) * q.scale.double().reshape(())).to(q.dtype)


@operator(aten.sum.dim_IntList, aten.mean.dim)
def total_along(
    func: Any, q: QTensor, dim: Sequence[int] | None, *keepdim: bool, **named: Any
) -> Any:
    """The same along dimensions; floats where a scale changes along one of them."""
    dims = [place(d, q.ndim) for d in dim] if dim else list(range(q.ndim))
    one_scale = all(kind_of(q, d) is Kind.SHARED for d in dims)
    if not one_scale or q.spec.float_zero_point or named.get("dtype") is not None:
        return NotImplemented
    keep = keepdim[0] if keepdim else named.get("keepdim", False)
    steps = steps_of(q).double()
    # One scale along the summed dimensions, so their sum is that scale.
    scale = q.scale.double().sum(dims, keep) if q.ndim else q.scale.double()
    return (func(steps, dims, keep) * scale).to(q.dtype)


@operator(
    *(
        getattr(getattr(aten, name), overload)
        for name in ("eq", "ge", "gt", "le", "lt", "ne")
        for overload in ("Scalar", "Tensor")
    ),
    aten.isinf.default,
    aten.isnan.default,
)
def compare(func: Any, *args: Any) -> Tensor:
    """Comparison of the values that the integers stand for."""
    result: Tensor = func(*map(_floats, args))
    return result


@operator(aten.equal.default)
def equal(func: Any, first: Any, second: Any) -> bool:
    """Of two quantized tensors format, scales and integers; with a float one, the values."""
    if not (isinstance(first, QTensor) and isinstance(second, QTensor)):
        return torch.equal(_floats(first), _floats(second))
    if first.spec != second.spec or first.shape != second.shape:
        return False
    pairs = zip((first.ints, *first.qparams()), (second.ints, *second.qparams()), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@operator(aten._local_scalar_dense.default)
def item(func: Any, q: QTensor) -> float:
    """The float that a single element stands for."""
    return float(q.floats().item())
