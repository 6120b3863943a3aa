"""The native gates of recurrent layers, equal to ``recurrent``'s in every bit."""

import torch
from torch import Tensor

from halfstep.numerics import native
from halfstep.numerics.recurrent import State


def lstm_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h, c) from the sums (N, 4 H) and the state before; see ``recurrent.lstm_gates``."""
    c = torch.empty_like(state[1])
    return _run(xi, hh, state[1], 4, c), c


def gru_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h,) from the sums (N, 3 H) and the state before; see ``recurrent.gru_gates``."""
    return (_run(xi, hh, state[0], 3),)


def tanh_gates(xi: Tensor, hh: Tensor, state: State) -> State:
    """(h,) from the sums (N, H); see ``recurrent.tanh_gates``."""
    return (_run(xi, hh, state[0], 1),)


def _run(xi: Tensor, hh: Tensor, before: Tensor, parts: int, c: Tensor | None = None) -> Tensor:
    """The next hidden state; an LSTM's next cell goes to ``c``. All are contiguous float32."""
    h = torch.empty((xi.shape[0], xi.shape[1] // parts), dtype=torch.float32)
    native.kernels().gates(
        [0 if t is None else t.data_ptr() for t in (xi, hh, before, h, c)],
        *(*h.shape, parts, torch.get_num_threads()),
    )
    return h
