"""The recurrent integer steps: torch's flat weights taken apart, and the layers run.

``weights`` are the QTensors w_ih, w_hh and w_hr with the float biases between them, in the order of
``nn.LSTM._flat_weights``. States are (layers * directions, N, H), zeros where None is given.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from halfstep.numerics import recurrent
from halfstep.numerics.recurrent import Gates, State, Weights
from halfstep.spec import QSpec
from halfstep.tensor.contraction import operands_of


def lstm(
    x: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    weights: Sequence[Any],
    bias: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    spec: QSpec,
) -> tuple[Tensor, ...]:
    """(y, h, c) of an LSTM, also with a projection."""
    sizes = (weights[1].shape[1], weights[1].shape[0] // 4)
    options = (bias, layers, bidirectional, batch_first, spec)
    return _run(recurrent.lstm_gates, x, (h, c), sizes, weights, options)


def gru(
    x: Tensor,
    h: Tensor | None,
    weights: Sequence[Any],
    bias: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    spec: QSpec,
) -> tuple[Tensor, ...]:
    """(y, h) of a GRU."""
    options = (bias, layers, bidirectional, batch_first, spec)
    return _run(recurrent.gru_gates, x, (h,), weights[1].shape[1:], weights, options)


def rnn(
    x: Tensor,
    h: Tensor | None,
    weights: Sequence[Any],
    bias: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
    relu: bool,
    spec: QSpec,
) -> tuple[Tensor, ...]:
    """(y, h) of a plain recurrent layer, by tanh or relu."""
    gates = recurrent.relu_gates if relu else recurrent.tanh_gates
    options = (bias, layers, bidirectional, batch_first, spec)
    return _run(gates, x, (h,), weights[1].shape[1:], weights, options)


def _run(
    gates: Gates,
    x: Tensor,
    given: Sequence[Tensor | None],
    sizes: Sequence[int],
    weights: Sequence[Any],
    options: tuple[bool, int, bool, bool, QSpec],
) -> tuple[Tensor, ...]:
    bias, layers, bidirectional, batch_first, spec = options
    x = x.float().transpose(0, 1) if batch_first else x.float()
    directions = 1 + bidirectional
    state: State = tuple(
        x.new_zeros((layers * directions, x.shape[1], size)) if h is None else h.detach().float()
        for h, size in zip(given, sizes, strict=True)
    )
    each = list(_weights(weights, layers * directions, bias=bias))
    grouped = [each[first : first + directions] for first in range(0, len(each), directions)]
    y, last = recurrent.run_layers(gates, x, state, grouped, spec)
    return (y.transpose(0, 1).contiguous() if batch_first else y, *last)


def _weights(flat: Sequence[Any], count: int, *, bias: bool) -> Iterator[Weights]:
    """The weights of ``count`` directions: w_ih, w_hh, two biases or none, w_hr or none."""
    size = len(flat) // count
    for first in range(0, len(flat), size):
        w_ih, w_hh, *rest = flat[first : first + size]
        b_ih, b_hh = (rest.pop(0).detach(), rest.pop(0).detach()) if bias else (None, None)
        projection = operands_of(rest[0]) if rest else None
        yield Weights(operands_of(w_ih), operands_of(w_hh), b_ih, b_hh, projection)
