"""The gates and layers of recurrent networks, one operation at a time, and sample by sample."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from halfstep.numerics import activations, recurrent
from halfstep.numerics.recurrent import Weights
from halfstep.numerics.rows import Rows, linear_rows, quantize_rows
from halfstep.spec import PerToken, QSpec, int8, uint8
from tests.assertions import assert_same_bits

SPEC = QSpec(uint8, PerToken())


def matrix(rows: int, columns: int) -> Rows:
    """A weight of int8 codes, one scale for each row."""
    codes = torch.randint(-127, 128, (rows, columns)).to(torch.int8)
    return codes, torch.rand(rows, 1) * 0.01 + 0.001, torch.zeros(rows, 1, dtype=torch.int32)


def weights(gates: int, inputs: int, hidden: int, projected: int = 0) -> Weights:
    """The weights of one direction, with biases."""
    biases = torch.randn(gates * hidden), torch.randn(gates * hidden)
    w_ih, w_hh = matrix(gates * hidden, inputs), matrix(gates * hidden, projected or hidden)
    return Weights(w_ih, w_hh, *biases, matrix(projected, hidden) if projected else None)


def sigmoid(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The product's own, which has its own tests, for NumPy."""
    return activations.sigmoid(x).numpy()


def tanh(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The product's own, which has its own tests, for NumPy."""
    return activations.tanh(x).numpy()


def test_lstm_gates() -> None:
    """Input, forget, cell, output; two products, then their sum; no fused operation."""
    xi, hh, c = torch.randn(5, 28), torch.randn(5, 28), torch.randn(5, 7)
    i, f, g, o = (xi + hh).split(7, 1)
    wanted = sigmoid(f) * c.numpy() + sigmoid(i) * tanh(g)
    h, found = recurrent.lstm_gates(xi, hh, (torch.zeros(5, 7), c))
    assert_same_bits(found, torch.from_numpy(wanted))
    assert_same_bits(h, torch.from_numpy(sigmoid(o) * tanh(torch.from_numpy(wanted))))


def test_gru_gates() -> None:
    """Reset, update, new; the reset gate stands before the whole recurrent part of the new gate."""
    xi, hh, h = torch.randn(5, 21), torch.randn(5, 21), torch.randn(5, 7)
    r, z = sigmoid(xi[:, :7] + hh[:, :7]), sigmoid(xi[:, 7:14] + hh[:, 7:14])
    n = tanh(torch.from_numpy(xi[:, 14:].numpy() + r * hh[:, 14:].numpy()))
    (found,) = recurrent.gru_gates(xi, hh, (h,))
    assert_same_bits(found, torch.from_numpy((h.numpy() - n) * z + n))


def test_plain_gates() -> None:
    """Tanh or relu of the sum; relu keeps NaN."""
    xi, hh = torch.randn(5, 7), torch.randn(5, 7)
    xi[2] = math.nan
    assert_same_bits(recurrent.tanh_gates(xi, hh, ())[0], activations.tanh(xi + hh))
    assert_same_bits(recurrent.relu_gates(xi, hh, ())[0], (xi + hh).clamp(min=0.0))


def test_steps_of_a_layer_with_projection() -> None:
    """Each step quantizes the state, and the output before its projection, row by row."""
    own, x = weights(4, 3, 6, projected=2), torch.randn(4, 5, 3)
    h, c = torch.randn(5, 2), torch.randn(5, 6)
    y, last = recurrent.run_layers(recurrent.lstm_gates, x, (h[None], c[None]), [[own]], SPEC)
    assert own.w_hr is not None
    for step in range(4):
        xi = linear_rows(quantize_rows(x[step], SPEC), own.w_ih, own.b_ih)
        hh = linear_rows(quantize_rows(h, SPEC), own.w_hh, own.b_hh)
        h, c = recurrent.lstm_gates(xi, hh, (h, c))
        h = linear_rows(quantize_rows(h, SPEC), own.w_hr)
        assert_same_bits(y[step], h)
    assert_same_bits(last[0][0], h)
    assert_same_bits(last[1][0], c)


def test_the_second_direction_runs_backwards() -> None:
    """The same weights in both directions: one is the other on the reversed sequence."""
    own, x, h = weights(3, 4, 5), torch.randn(6, 2, 4), torch.randn(1, 2, 5)
    y, last = recurrent.run_layers(recurrent.gru_gates, x, (h.repeat(2, 1, 1),), [[own, own]], SPEC)
    back, back_last = recurrent.run_layers(recurrent.gru_gates, x.flip(0), (h,), [[own]], SPEC)
    assert_same_bits(y[..., 5:], back.flip(0))
    assert_same_bits(last[0][1:], back_last[0])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spec", [SPEC, QSpec(int8, PerToken(), symmetric=True)], ids=str)
def test_a_sample_of_a_batch_is_the_sample_alone(spec: QSpec, threads: int) -> None:
    """Bit for bit, in any batch and with any number of threads."""
    layers = [[weights(4, 8, 33)], [weights(4, 33, 33)]]
    x, state = torch.randn(3, 9, 8), torch.zeros(2, 9, 33)
    torch.set_num_threads(threads)
    y, last = recurrent.run_layers(recurrent.lstm_gates, x, (state, state), layers, spec)
    for at in (0, 4, 8):
        one = state[:, :1]
        alone, after = recurrent.run_layers(
            recurrent.lstm_gates, x[:, at : at + 1], (one, one), layers, spec
        )
        assert_same_bits(y[:, at], alone[:, 0])
        assert_same_bits(last[1][:, at], after[1][:, 0])


def test_nan_stays_in_its_sample() -> None:
    """From its step on the sample is NaN; the others never are."""
    own, x = weights(3, 4, 5), torch.randn(4, 3, 4)
    x[2, 1, 0] = math.nan
    y, _ = recurrent.run_layers(recurrent.gru_gates, x, (torch.zeros(1, 3, 5),), [[own]], SPEC)
    assert y[2:, 1].isnan().all()
    assert not y[:2, 1].isnan().any()
    assert not y[:, [0, 2]].isnan().any()


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_no_steps_or_no_samples(shape: tuple[int, int]) -> None:
    """The shape of an empty result, and the state as it was."""
    own, state = weights(3, 4, 5), torch.zeros(1, shape[1], 5)
    y, last = recurrent.run_layers(
        recurrent.gru_gates, torch.empty(*shape, 4), (state,), [[own]], SPEC
    )
    assert y.shape == (*shape, 5)
    assert_same_bits(last[0], state)
