"""Activations: where ONNX has none of that kind, or only from a later opset on, their formula."""

import math

import torch

from halfstep.engines.onnx_graph import Ref
from halfstep.engines.onnx_ops.elementwise import promoted
from halfstep.engines.onnx_ops.table import translates
from halfstep.engines.onnx_qdq import QdqGraph

_SELU = (1.6732632423543772, 1.0507009873554805)


def _times(g: QdqGraph, x: Ref, factor: float) -> Ref:
    return g.op("Mul", x, g.number(factor, x.dtype))


@translates("aten.silu")
def silu(g: QdqGraph, x: Ref) -> Ref:
    """``x * sigmoid(x)``."""
    return g.op("Mul", x, g.op("Sigmoid", x))


@translates("aten.gelu")
def gelu(g: QdqGraph, x: Ref, approximate: str = "none") -> Ref:
    """``x / 2 * (1 + erf(x / sqrt(2)))``, or its approximation by tanh."""
    if approximate == "tanh":
        cube = g.op("Mul", g.op("Mul", x, x), x)
        inner = g.op("Add", x, _times(g, cube, 0.044715))
        bent = g.op("Tanh", _times(g, inner, math.sqrt(2 / math.pi)))
    else:
        bent = g.op("Erf", g.op("Div", x, g.number(math.sqrt(2), x.dtype)))
    return _times(g, g.op("Mul", x, g.op("Add", bent, g.number(1.0, x.dtype))), 0.5)


@translates("aten.hardsigmoid")
def hardsigmoid(g: QdqGraph, x: Ref) -> Ref:
    """``clamp(x / 6 + 1 / 2, 0, 1)``."""
    return g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@translates("aten.hardswish")
def hardswish(g: QdqGraph, x: Ref) -> Ref:
    """``x * hardsigmoid(x)``."""
    return g.op("Mul", x, hardsigmoid(g, x))


@translates("aten.mish")
def mish(g: QdqGraph, x: Ref) -> Ref:
    """``x * tanh(softplus(x))``."""
    return g.op("Mul", x, g.op("Tanh", g.op("Softplus", x)))


@translates("aten.softplus")
def softplus(g: QdqGraph, x: Ref, beta: float = 1.0, threshold: float = 20.0) -> Ref:
    """``log(1 + exp(beta * x)) / beta``, and x itself where that is the same."""
    scaled = x if beta == 1 else _times(g, x, beta)
    soft = g.op("Softplus", scaled)
    soft = soft if beta == 1 else _times(g, soft, 1 / beta)
    is_large = g.op("Greater", scaled, g.number(threshold, x.dtype), dtype=torch.bool)
    return g.op("Where", is_large, x, soft, dtype=x.dtype)


@translates("aten.elu")
def elu(
    g: QdqGraph, x: Ref, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Ref:
    """``scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))``."""
    if input_scale == 1:
        bent = g.op("Elu", x, alpha=float(alpha))
    else:
        low = g.op("Min", x, g.number(0.0, x.dtype))
        low = g.op("Sub", g.op("Exp", _times(g, low, input_scale)), g.number(1.0, x.dtype))
        bent = g.op("Add", g.op("Relu", x), _times(g, low, alpha))
    return bent if scale == 1 else _times(g, bent, scale)


@translates("aten.celu")
def celu(g: QdqGraph, x: Ref, alpha: float = 1.0) -> Ref:
    """``max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)``."""
    return elu(g, x, alpha, 1.0, 1 / alpha)


@translates("aten.selu")
def selu(g: QdqGraph, x: Ref) -> Ref:
    """The self-normalizing ELU."""
    return elu(g, x, *_SELU)


@translates("aten.leaky_relu")
def leaky_relu(g: QdqGraph, x: Ref, slope: float = 0.01) -> Ref:
    """``x if x > 0 else slope * x``."""
    return g.op("LeakyRelu", x, alpha=float(slope))


@translates("aten.prelu")
def prelu(g: QdqGraph, x: Ref, weight: Ref) -> Ref:
    """``x if x > 0 else weight * x``, with one weight or one for each channel (axis 1)."""
    if x.rank > 1:
        weight = g.reshape(weight, (-1, *[1] * (x.rank - 2)))
    return g.op("PRelu", x, weight, shape=x.shape)


@translates("aten.glu")
def glu(g: QdqGraph, x: Ref, dim: int = -1) -> Ref:
    """``a * sigmoid(b)`` of the two halves."""
    size = x.shape[dim]
    half = None if size is None else size // 2
    shape = tuple(half if axis == dim % x.rank else n for axis, n in enumerate(x.shape))
    attributes = {"axis": dim} | ({"num_outputs": 2} if g.opset >= 18 else {})
    a, b = g.emit("Split", [x], [shape, shape], [x.dtype] * 2, attributes)
    return g.op("Mul", a, g.op("Sigmoid", b))


@translates("aten.threshold")
def threshold(g: QdqGraph, x: Ref, limit: float, value: float) -> Ref:
    """``x if x > limit else value``."""
    is_above = g.op("Greater", x, g.number(limit, x.dtype), dtype=torch.bool)
    return g.op("Where", is_above, x, g.number(value, x.dtype), dtype=x.dtype)


@translates("aten.log_sigmoid")
def log_sigmoid(g: QdqGraph, x: Ref) -> Ref:
    """``-softplus(-x)``."""
    return g.op("Neg", g.op("Softplus", g.op("Neg", x)))


@translates("aten.softmax", "aten._softmax")
def softmax(g: QdqGraph, x: Ref, dim: int, dtype: torch.dtype | None = None) -> Ref:
    """Along one axis."""
    x = g.cast(x, dtype) if isinstance(dtype, torch.dtype) else x
    return g.op("Softmax", x, axis=dim)


@translates("aten.log_softmax", "aten._log_softmax")
def log_softmax(g: QdqGraph, x: Ref, dim: int, dtype: torch.dtype | None = None) -> Ref:
    """Along one axis."""
    x = g.cast(x, dtype) if isinstance(dtype, torch.dtype) else x
    return g.op("LogSoftmax", x, axis=dim)


@translates("aten.lerp")
def lerp(g: QdqGraph, x: Ref, end: Ref, weight: Ref | float) -> Ref:
    """``x + weight * (end - x)``."""
    difference, factor = promoted(g, g.op("Sub", end, x), weight)
    return g.op("Add", x, g.op("Mul", difference, factor))
