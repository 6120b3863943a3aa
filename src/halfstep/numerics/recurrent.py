"""LSTM, GRU and plain recurrent layers over rows that are quantized while the model runs.

    xi    = linear_rows(quantize_rows(x), w_ih) + b_ih         all steps at once
    hh    = linear_rows(quantize_rows(h), w_hh) + b_hh         in each step
    LSTM  i, f, g, o = the quarters of xi + hh
          c = sigmoid(f) * c + sigmoid(i) * tanh(g);  h = sigmoid(o) * tanh(c)
          h = linear_rows(quantize_rows(h), w_hr)              with a projection
    GRU   r, z of the first two thirds of xi + hh, by sigmoid
          n = tanh(xi_n + r * hh_n);  h = (h - n) * z + n
    RNN   h = tanh(xi + hh), or its relu

All of it float32, each operation rounded, with the sigmoid and tanh of ``activations``: so a
sample's result does not depend on the others, on the number of threads or on the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from halfstep.numerics.activations import sigmoid, tanh
from halfstep.numerics.fused import clamp
from halfstep.numerics.rows import Rows, linear_rows, quantize_rows
from halfstep.spec import QSpec

State: TypeAlias = tuple[Tensor, ...]
# (xi, hh, state) of one step -> the next state.
Gates: TypeAlias = Callable[[Tensor, Tensor, State], State]


@dataclass(frozen=True)
class Weights:
    """The weights of one direction of one layer: codes, scale and zero point of each.

    w_ih (G * H, I), w_hh (G * H, H or P), w_hr (P, H) with a projection; biases (G * H).
    """

    w_ih: Rows
    w_hh: Rows
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Rows | None = None


def lstm_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h, c) from the sums (N, 4 H) and the state before; h is not projected yet."""
    i, f, g, o = (xi + hh).chunk(4, -1)
    c = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def gru_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h,) from the sums (N, 3 H) and the state before; the bias of hh is inside the reset."""
    (xr, xz, xn), (hr, hz, hn) = xi.chunk(3, -1), hh.chunk(3, -1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = tanh(xn + r * hn)
    return ((state[0] - n) * z + n,)


def tanh_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h,) from the sums (N, H)."""
    return (tanh(xi + hh),)


def relu_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h,) from the sums (N, H)."""
    return (clamp(xi + hh, 0.0, None),)


def run_layers(
    gates: Gates, x: Tensor, state: State, layers: Sequence[Sequence[Weights]], spec: QSpec
) -> tuple[Tensor, State]:
    """The outputs (T, N, D * H) and the last states (L * D, N, H) of x (T, N, I).

    state: (L * D, N, H) each, L layers of D directions; the second direction runs backwards.
    """
    last: list[State] = []
    for directions in layers:
        outputs = []
        for backwards, weights in enumerate(directions):
            own = tuple(part[len(last)] for part in state)
            y, after = _run_direction(gates, x.flip(0) if backwards else x, own, weights, spec)
            outputs.append(y.flip(0) if backwards else y)
            last.append(after)
        x = torch.cat(outputs, -1)
    return x, tuple(torch.stack(parts) for parts in zip(*last, strict=True))


def _run_direction(
    gates: Gates, x: Tensor, state: State, weights: Weights, spec: QSpec
) -> tuple[Tensor, State]:
    xi = linear_rows(quantize_rows(x, spec), weights.w_ih, weights.b_ih)
    outputs = []
    for step in xi:
        hh = linear_rows(quantize_rows(state[0], spec), weights.w_hh, weights.b_hh)
        h, *rest = gates(step, hh, state)
        if weights.w_hr is not None:
            h = linear_rows(quantize_rows(h, spec), weights.w_hr)
        state = (h, *rest)
        outputs.append(h)
    return torch.stack(outputs) if outputs else x.new_empty((0, *state[0].shape)), state
