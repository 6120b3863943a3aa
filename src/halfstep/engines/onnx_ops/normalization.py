"""Normalization over channels, groups of them, or the last axes."""

from collections.abc import Sequence
from typing import Any

import torch

from halfstep.engines.onnx_graph import Ref
from halfstep.engines.onnx_ops.creation import full
from halfstep.engines.onnx_ops.reductions import reduce
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

# ONNX has LayerNormalization from this opset on.
_LAYER_NORM_OPSET = 17


@translates("aten.layer_norm")
def layer_norm(
    g: QdqGraph,
    x: Ref,
    shape: Sequence[int],
    weight: Ref | None = None,
    bias: Ref | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Ref:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last axes."""
    if g.opset >= _LAYER_NORM_OPSET:
        scale = g.constant(torch.ones(tuple(shape))) if weight is None else weight
        return g.op(
            "LayerNormalization", x, scale, bias, shape=x.shape, axis=-len(shape), epsilon=eps
        )
    axes = list(range(-len(shape), 0))
    off = g.op("Sub", x, reduce(g, "ReduceMean", x, axes, keepdim=True))
    power = g.op("Pow", off, g.number(2.0, torch.float32))
    variance = reduce(g, "ReduceMean", power, axes, keepdim=True)
    deviation = g.op("Sqrt", g.op("Add", variance, g.number(eps, x.dtype)))
    return _scaled(g, g.op("Div", off, deviation), weight, bias)


def _scaled(g: QdqGraph, y: Ref, weight: Ref | None, bias: Ref | None) -> Ref:
    y = y if weight is None else g.op("Mul", y, weight)
    return y if bias is None else g.op("Add", y, bias)


@translates("aten.rms_norm")
def rms_norm(
    g: QdqGraph, x: Ref, shape: Sequence[int], weight: Ref | None = None, eps: float | None = None
) -> Ref:
    """``x / sqrt(mean of squares + eps) * weight`` over the last axes."""
    axes = list(range(-len(shape), 0))
    mean = reduce(g, "ReduceMean", g.op("Mul", x, x), axes, keepdim=True)
    small = torch.finfo(x.dtype).eps if eps is None else eps
    root = g.op("Sqrt", g.op("Add", mean, g.number(small, x.dtype)))
    return _scaled(g, g.op("Div", x, root), weight, None)


@translates("aten.batch_norm")
def batch_norm(
    g: QdqGraph,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    mean: Ref | None,
    variance: Ref | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Ref:
    """By the statistics that the model holds."""
    if training or mean is None or variance is None:
        raise refuse(g, "batch norm in training", "call model.eval() before it is quantized")
    size = mean.shape
    if size[0] is None:
        raise refuse(g, "batch norm over an unknown number of channels", "give it parameters")
    scale = g.constant(torch.ones(size[0])) if weight is None else weight
    shift = g.constant(torch.zeros(size[0])) if bias is None else bias
    return g.op("BatchNormalization", x, scale, shift, mean, variance, shape=x.shape, epsilon=eps)


@translates("aten.instance_norm")
def instance_norm(
    g: QdqGraph,
    x: Ref,
    weight: Ref | None,
    bias: Ref | None,
    mean: Ref | None,
    variance: Ref | None,
    use_input: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Ref:
    """Each channel of each sample by its own statistics, or all by those that the model holds."""
    if not use_input:
        return batch_norm(g, x, weight, bias, mean, variance, False, momentum, eps)
    scale = full(g, [g.size(x, 1)], 1.0, x.dtype) if weight is None else weight
    shift = full(g, [g.size(x, 1)], 0.0, x.dtype) if bias is None else bias
    return g.op("InstanceNormalization", x, scale, shift, shape=x.shape, epsilon=eps)


@translates("aten.group_norm")
def group_norm(
    g: QdqGraph,
    x: Ref,
    groups: int,
    weight: Ref | None = None,
    bias: Ref | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Ref:
    """Each group of channels of each sample by its own statistics."""
    parts = g.op("Reshape", x, [0, groups, -1], shape=(x.shape[0], groups, None))
    one, zero = torch.ones(groups), torch.zeros(groups)
    normal = g.op("InstanceNormalization", parts, g.constant(one), g.constant(zero),
                  shape=parts.shape, epsilon=eps)  # fmt: skip
    shape = g.op("Shape", x, shape=(x.rank,), dtype=torch.int64)
    y = g.op("Reshape", normal, shape, shape=x.shape)
    places = (-1, *[1] * (x.rank - 2))
    return _scaled(g, y, *(None if p is None else g.reshape(p, places) for p in (weight, bias)))
