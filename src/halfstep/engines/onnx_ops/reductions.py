"""Sums, means, extremes and norms over axes."""

from collections.abc import Sequence
from typing import Any

import torch

from halfstep.engines.onnx_graph import Ref, Shape
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

# From these opsets on the axes are an input and no attribute.
_AXES_AS_INPUT = {"ReduceSum": 13}
_AXES_AS_INPUT_FROM = 18


def reduced(x: Ref, axes: Sequence[int], *, keepdim: bool) -> Shape:
    """The shape after the axes are gone, or 1."""
    gone = {axis % x.rank for axis in axes} if x.rank else set()
    if keepdim:
        return tuple(1 if axis in gone else n for axis, n in enumerate(x.shape))
    return tuple(n for axis, n in enumerate(x.shape) if axis not in gone)


def reduce(g: QdqGraph, op: str, x: Ref, axes: Any, *, keepdim: bool = False) -> Ref:
    """One of ONNX's reductions over axes; None or none of them means all."""
    axes = [axes] if isinstance(axes, int) else list(axes or range(x.rank))
    if not x.rank:
        return x
    shape = reduced(x, axes, keepdim=keepdim)
    if g.opset >= _AXES_AS_INPUT.get(op, _AXES_AS_INPUT_FROM):
        return g.op(op, x, axes, shape=shape, keepdims=int(keepdim))
    return g.op(op, x, shape=shape, axes=tuple(axes), keepdims=int(keepdim))


def _summable(g: QdqGraph, x: Ref, dtype: Any) -> Ref:
    """In the dtype in which torch sums it."""
    if isinstance(dtype, torch.dtype):
        return g.cast(x, dtype)
    return x if x.dtype.is_floating_point else g.cast(x, torch.int64)


@translates("aten.sum", "aten.sum.dim_IntList")
def sum_(g: QdqGraph, x: Ref, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Ref:
    """The sum over axes."""
    return reduce(g, "ReduceSum", _summable(g, x, dtype), dim, keepdim=keepdim)


@translates("aten.sum.default")
def sum_all(g: QdqGraph, x: Ref, dtype: Any = None) -> Ref:
    """The sum of everything."""
    return sum_(g, x, dtype=dtype)


@translates("aten.mean.default")
def mean_all(g: QdqGraph, x: Ref, dtype: Any = None) -> Ref:
    """The mean of everything."""
    return mean(g, x, dtype=dtype)


@translates("aten.mean")
def mean(g: QdqGraph, x: Ref, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Ref:
    """The mean over axes; over all that follow the channels, ONNX's global pooling."""
    x = g.cast(x, dtype) if isinstance(dtype, torch.dtype) else x
    axes = sorted(axis % x.rank for axis in dim) if isinstance(dim, tuple) else None
    if x.rank > 2 and axes == list(range(2, x.rank)):
        shape = (*x.shape[:2], *[1] * (x.rank - 2))
        pooled = g.op("GlobalAveragePool", x, shape=shape)
        return pooled if keepdim else g.op("Flatten", pooled, shape=shape[:2], axis=1)
    return reduce(g, "ReduceMean", x, dim, keepdim=keepdim)


@translates("aten.amax")
def amax(g: QdqGraph, x: Ref, dim: Any = None, keepdim: bool = False) -> Ref:
    """The largest over axes."""
    return reduce(g, "ReduceMax", x, dim, keepdim=keepdim)


@translates("aten.amin")
def amin(g: QdqGraph, x: Ref, dim: Any = None, keepdim: bool = False) -> Ref:
    """The smallest over axes."""
    return reduce(g, "ReduceMin", x, dim, keepdim=keepdim)


@translates("aten.max.default")
def max_all(g: QdqGraph, x: Ref) -> Ref:
    """The largest of all."""
    return amax(g, x)


@translates("aten.min.default")
def min_all(g: QdqGraph, x: Ref) -> Ref:
    """The smallest of all."""
    return amin(g, x)


@translates("aten.max.dim")
def max_dim(g: QdqGraph, x: Ref, dim: int, keepdim: bool = False) -> tuple[Ref, Ref]:
    """The largest along an axis, and where it stands."""
    return amax(g, x, dim, keepdim), argmax(g, x, dim, keepdim)


@translates("aten.min.dim")
def min_dim(g: QdqGraph, x: Ref, dim: int, keepdim: bool = False) -> tuple[Ref, Ref]:
    """The smallest along an axis, and where it stands."""
    return amin(g, x, dim, keepdim), _arg(g, "ArgMin", x, dim, keepdim=keepdim)


@translates("aten.argmax")
def argmax(g: QdqGraph, x: Ref, dim: int | None = None, keepdim: bool = False) -> Ref:
    """Where the largest stands."""
    return _arg(g, "ArgMax", x, dim, keepdim=keepdim)


@translates("aten.argmin")
def argmin(g: QdqGraph, x: Ref, dim: int | None = None, keepdim: bool = False) -> Ref:
    """Where the smallest stands."""
    return _arg(g, "ArgMin", x, dim, keepdim=keepdim)


def _arg(g: QdqGraph, op: str, x: Ref, dim: int | None, *, keepdim: bool) -> Ref:
    if dim is None:
        x, dim = g.reshape(x, (-1,)), 0
        keepdim = False
    shape = reduced(x, [dim], keepdim=keepdim)
    return g.op(op, x, shape=shape, dtype=torch.int64, axis=dim, keepdims=int(keepdim))


@translates("aten.any", "aten.any.dim")
def any_(g: QdqGraph, x: Ref, dim: Any = None, keepdim: bool = False) -> Ref:
    """Whether any is true."""
    ones = g.cast(g.cast(x, torch.bool), torch.int32)
    return g.cast(reduce(g, "ReduceMax", ones, dim, keepdim=keepdim), torch.bool)


@translates("aten.all", "aten.all.dim")
def all_(g: QdqGraph, x: Ref, dim: Any = None, keepdim: bool = False) -> Ref:
    """Whether all are true."""
    ones = g.cast(g.cast(x, torch.bool), torch.int32)
    return g.cast(reduce(g, "ReduceMin", ones, dim, keepdim=keepdim), torch.bool)


@translates("aten.linalg_vector_norm", "aten.norm.ScalarOpt_dim")
def vector_norm(
    g: QdqGraph,
    x: Ref,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Ref:
    """The norm of order 1 or 2 over axes."""
    if order not in (1, 2):
        raise refuse(g, f"a norm of order {order}", "compute it outside the model")
    return reduce(g, "ReduceL1" if order == 1 else "ReduceL2", x, dim, keepdim=keepdim)


@translates("aten.logsumexp")
def logsumexp(g: QdqGraph, x: Ref, dim: Any, keepdim: bool = False) -> Ref:
    """``log(sum(exp(x)))``."""
    return reduce(g, "ReduceLogSumExp", x, dim, keepdim=keepdim)


@translates("aten.var.correction")
def var(
    g: QdqGraph, x: Ref, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Ref:
    """The variance over axes, of which a correction (1 unless said) is taken off the count."""
    axes = list(dim or range(x.rank))
    off = g.op("Sub", x, mean(g, x, tuple(axes), keepdim=True))
    total = reduce(g, "ReduceSum", g.op("Mul", off, off), axes, keepdim=keepdim)
    count: Ref | None = None
    for axis in axes:
        size = g.size(x, axis)
        factor = g.number(size, x.dtype)
        count = factor if count is None else g.op("Mul", count, factor)
    less = g.number(1.0 if correction is None else float(correction), x.dtype)
    return g.op("Div", total, g.op("Sub", count, less))


@translates("aten.cumsum")
def cumsum(g: QdqGraph, x: Ref, dim: int, dtype: Any = None) -> Ref:
    """Running sums along an axis."""
    x = _summable(g, x, dtype)
    return g.op("CumSum", x, g.constant(torch.tensor(dim)), shape=x.shape)


@translates("aten.std.correction")
def std(g: QdqGraph, x: Ref, dim: Any = None, **options: Any) -> Ref:
    """The square root of the variance."""
    return g.op("Sqrt", var(g, x, dim, **options))


@translates("aten.var.dim")
def var_unbiased(
    g: QdqGraph, x: Ref, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> Ref:
    """The variance with or without a correction of 1."""
    return var(g, x, dim, correction=float(unbiased), keepdim=keepdim)


@translates("aten.std.dim")
def std_unbiased(
    g: QdqGraph, x: Ref, dim: Any = None, unbiased: bool = True, keepdim: bool = False
) -> Ref:
    """The square root of that."""
    return g.op("Sqrt", var_unbiased(g, x, dim, unbiased, keepdim))
