"""Recurrent layers. ONNX's hold one layer, in both directions, with another order of the gates.

Their weights may be integers; the layers themselves run in float.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.engines.onnx_graph import Known, Ref
from halfstep.engines.onnx_ops.choices import sliced
from halfstep.engines.onnx_ops.matrix import linear
from halfstep.engines.onnx_ops.moves import cat, transpose, unsqueeze
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph
from halfstep.tensor import QTensor

# For each of ONNX's gates the place of torch's.
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


@translates("halfstep.lstm")
def lstm(
    g: QdqGraph, x: Ref, h: Ref | None, c: Ref | None, weights: Sequence[Ref], *options: Any
) -> tuple[Ref, ...]:
    """``(y, h, c)`` of an LSTM of several layers."""
    return _layers(g, "LSTM", x, [h, c], weights, options, {})


@translates("halfstep.gru")
def gru(
    g: QdqGraph, x: Ref, h: Ref | None, weights: Sequence[Ref], *options: Any
) -> tuple[Ref, ...]:
    """``(y, h)`` of a GRU of several layers."""
    return _layers(g, "GRU", x, [h], weights, options, {"linear_before_reset": 1})


@translates("halfstep.rnn")
def rnn(
    g: QdqGraph, x: Ref, h: Ref | None, weights: Sequence[Ref], *options: Any
) -> tuple[Ref, ...]:
    """``(y, h)`` of a plain recurrent net of several layers."""
    *shared, is_relu = options
    directions = 2 if shared[2] else 1
    names = ("Relu" if is_relu else "Tanh",) * directions
    return _layers(g, "RNN", x, [h], weights, shared, {"activations": names})


def _layers(
    g: QdqGraph,
    op: str,
    x: Ref,
    states: Sequence[Ref | None],
    weights: Sequence[Ref],
    options: Sequence[Any],
    attributes: dict[str, Any],
) -> tuple[Ref, ...]:
    """One node a layer. x is (T, N, I), or (N, T, I) with batch_first."""
    has_bias, layers, bidirectional, batch_first = options
    directions = 2 if bidirectional else 1
    x = transpose(g, x, 0, 1) if batch_first else x
    each = len(weights) // (layers * directions)
    if each != (4 if has_bias else 2):
        raise refuse(g, "an LSTM with proj_size", "leave it out of the quantized part, or project "
                     "with a Linear of its own")  # fmt: skip
    attributes = {**attributes, "direction": "bidirectional" if bidirectional else "forward"}
    after: list[tuple[Ref, ...]] = []
    for layer in range(layers):
        rows = layer * directions, (layer + 1) * directions
        own = [None if s is None else sliced(g, s, 0, *rows) for s in states]
        parts = [weights[i * each : (i + 1) * each] for i in range(*rows)]
        x, *last = _layer(g, op, x, own, parts, attributes)
        after.append(tuple(last))
    y = transpose(g, x, 0, 1) if batch_first else x
    return y, *(cat(g, parts, 0) for parts in zip(*after, strict=True))


def _layer(
    g: QdqGraph,
    op: str,
    x: Ref,
    states: Sequence[Ref | None],
    parts: Sequence[Sequence[Ref]],
    attributes: dict[str, Any],
) -> tuple[Ref, ...]:
    """(T, N, I) to (T, N, directions * hidden) and the last states."""
    wide = parts[0][1].shape
    hidden, directions = wide[1], len(parts)
    w, r = (_stacked(g, [_turned(g, op, part[i]) for part in parts]) for i in (0, 1))
    biases = [_bias(g, op, part) for part in parts if len(part) == 4]
    b = _stacked(g, biases) if biases else None
    state = (directions, x.shape[1], hidden)
    shapes = [(x.shape[0], directions, x.shape[1], hidden), *[state] * len(states)]
    given = [x, w, r, b, None, *states]
    y, *last = g.emit(op, given, shapes, [x.dtype] * len(shapes),
                      {**attributes, "hidden_size": hidden})  # fmt: skip
    if directions == 1:
        return g.op("Squeeze", y, [1], shape=(*y.shape[:1], *y.shape[2:])), *last
    flat = g.op("Reshape", transpose(g, y, 1, 2), [0, 0, -1],
                shape=(*x.shape[:2], directions * (hidden or 0)))  # fmt: skip
    return flat, *last


def _stacked(g: QdqGraph, parts: Sequence[Ref]) -> Ref:
    return cat(g, [unsqueeze(g, g.value(part), 0) for part in parts], 0)


def _turned(g: QdqGraph, op: str, weight: Ref) -> Ref:
    """A weight (gates * H, I) with ONNX's order of the gates."""
    order = _ORDER[op]
    if len(order) == 1:
        return weight
    if not isinstance(weight, Known):
        raise refuse(g, f"an {op} whose weights are computed", "leave it in float")
    return Known(weight.name, weight.dtype, weight.shape, reordered(weight.tensor, order))


def reordered(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Rows in blocks of one gate, in another order.

    >>> import torch
    >>> reordered(torch.tensor([1, 2, 3, 4]), (1, 0))
    tensor([3, 4, 1, 2])
    """
    size = tensor.shape[0] // len(order)
    index = torch.cat([torch.arange(gate * size, (gate + 1) * size) for gate in order])
    if not isinstance(tensor, QTensor):
        return tensor.detach()[index]
    ints, scale, zero_point = (
        part if part.shape[0] == 1 else part[index]
        for part in (tensor.ints, tensor.scale, tensor.zero_point)
    )
    return QTensor.from_parts(ints, scale, zero_point, tensor.spec)


def _bias(g: QdqGraph, op: str, part: Sequence[Ref]) -> Ref:
    """Both biases of one direction, one behind the other."""
    return cat(g, [g.value(_turned(g, op, bias)) for bias in part[2:4]], 0)


# Single steps, by their formulas.


@translates("aten.gru_cell")
def gru_cell(
    g: QdqGraph, x: Ref, h: Ref, w: Ref, r: Ref, b: Ref | None = None, rb: Ref | None = None
) -> Ref:
    """``(1 - z) * n + z * h``."""
    given, kept = linear(g, x, w, b), linear(g, h, r, rb)
    size = h.shape[-1] or 0
    gates = [[_gate(g, part, size, i) for part in (given, kept)] for i in range(3)]
    reset, update = (g.op("Sigmoid", g.op("Add", *gates[i])) for i in (0, 1))
    new = g.op("Tanh", g.op("Add", gates[2][0], g.op("Mul", reset, gates[2][1])))
    return g.op("Add", new, g.op("Mul", update, g.op("Sub", h, new)))


@translates("aten.lstm_cell")
def lstm_cell(
    g: QdqGraph,
    x: Ref,
    states: Sequence[Ref],
    w: Ref,
    r: Ref,
    b: Ref | None = None,
    rb: Ref | None = None,
) -> tuple[Ref, Ref]:
    """``(o * tanh(c), c)`` with ``c = f * c + i * g``."""
    h, c = states
    both = g.op("Add", linear(g, x, w, b), linear(g, h, r, rb))
    parts = [_gate(g, both, h.shape[-1] or 0, i) for i in range(4)]
    i, f, o = (g.op("Sigmoid", parts[n]) for n in (0, 1, 3))
    c = g.op("Add", g.op("Mul", f, c), g.op("Mul", i, g.op("Tanh", parts[2])))
    return g.op("Mul", o, g.op("Tanh", c)), c


@translates("aten.rnn_tanh_cell")
def rnn_tanh_cell(g: QdqGraph, x: Ref, h: Ref, w: Ref, r: Ref, *biases: Ref | None) -> Ref:
    """``tanh`` of the sum of two linear layers."""
    return g.op("Tanh", _two(g, x, h, w, r, *biases))


@translates("aten.rnn_relu_cell")
def rnn_relu_cell(g: QdqGraph, x: Ref, h: Ref, w: Ref, r: Ref, *biases: Ref | None) -> Ref:
    """``relu`` of the sum of two linear layers."""
    return g.op("Relu", _two(g, x, h, w, r, *biases))


def _two(g: QdqGraph, x: Ref, h: Ref, w: Ref, r: Ref, *biases: Ref | None) -> Ref:
    b, rb = (*biases, None, None)[:2]
    return g.op("Add", linear(g, x, w, b), linear(g, h, r, rb))


def _gate(g: QdqGraph, x: Ref, size: int, index: int) -> Ref:
    return sliced(g, x, -1, index * size, (index + 1) * size)
