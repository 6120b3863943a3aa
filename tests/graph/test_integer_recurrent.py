"""The recurrent integer steps beside torch's own layers."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.graph.integer_ops import INTEGER
from halfstep.spec import PerChannel, PerToken, QSpec, int8, uint8
from halfstep.tensor import quantize
from tests.assertions import assert_same_bits

WEIGHT = QSpec(int8, PerChannel(0), symmetric=True)
ROWS = [QSpec(uint8, PerToken()), QSpec(int8, PerToken(), symmetric=True)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"bidirectional": True, "num_layers": 2, "batch_first": True},
    {"bias": False, "num_layers": 2},
]
CASES = [(kind, options) for kind in (nn.LSTM, nn.GRU, nn.RNN) for options in OPTIONS]
CASES += [
    (nn.RNN, {"nonlinearity": "relu"}),
    (nn.LSTM, {"proj_size": 5, "num_layers": 2, "bidirectional": True}),
]


def run(layer: nn.RNNBase, x: Tensor, states: list[Tensor | None], spec: QSpec) -> list[Tensor]:
    """The integer step of a layer, with its weights quantized."""
    weights = tuple(quantize(w.detach(), WEIGHT) if w.ndim == 2 else w for w in layer._flat_weights)
    kind = layer.mode.lower().split("_")[0]
    relu = (layer.mode == "RNN_RELU",) if kind == "rnn" else ()
    options = (layer.bias, layer.num_layers, layer.bidirectional, layer.batch_first, *relu)
    return list(INTEGER[f"int.{kind}"](x, *states, weights, *options, spec))


def torch_outputs(layer: nn.RNNBase, x: Tensor, states: list[Tensor | None]) -> list[Tensor]:
    """What torch's layer returns."""
    given: Any = None if states[0] is None else tuple(states) if len(states) > 1 else states[0]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections")
        y, after = layer(x, given)
    return [y, *(after if isinstance(after, tuple) else [after])]


def states_of(layer: nn.RNNBase, batch: int) -> list[Tensor | None]:
    """Random first states."""
    count = layer.num_layers * (1 + layer.bidirectional)
    h = torch.randn(count, batch, layer.proj_size or layer.hidden_size)
    return [h, torch.randn(count, batch, layer.hidden_size)] if layer.mode == "LSTM" else [h]


@pytest.mark.parametrize("spec", ROWS, ids=str)
@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
@pytest.mark.parametrize("with_state", [True, False])
def test_near_the_float_layer(kind: Any, options: Any, spec: QSpec, *, with_state: bool) -> None:
    """Every output has torch's shape, and its value to the precision of 8 bits."""
    layer, x = kind(12, 16, **options), torch.randn(4, 4, 12)
    states = states_of(layer, 4)
    given = states if with_state else [None] * len(states)
    found, true = run(layer, x, given, spec), torch_outputs(layer, x, given)
    assert len(found) == len(true)
    for one, other in zip(found, true, strict=True):
        assert one.shape == other.shape
        assert one.is_contiguous()
        assert not one.requires_grad
        assert (one - other).abs().max() < 0.05


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_a_sample_of_a_batch_is_the_sample_alone(kind: Any, options: Any) -> None:
    """Bit for bit, whatever else is in the batch, outputs and last states."""
    layer = kind(7, 9, **options)
    x, states = torch.randn(5, 5, 7), states_of(layer, 5)
    y, *last = run(layer, x, states, ROWS[0])
    batch = 0 if layer.batch_first else 1
    for at in range(5):
        own = [state if state is None else state[:, at : at + 1] for state in states]
        alone, *after = run(layer, x.narrow(batch, at, 1), own, ROWS[0])
        assert_same_bits(alone, y.narrow(batch, at, 1))
        for one, other in zip(after, last, strict=True):
            assert_same_bits(one, other[:, at : at + 1])
