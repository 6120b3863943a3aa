"""Recurrent layers of the torch engine equal their formulas in every bit."""

from typing import Any

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.numerics import native
from tests.engines.steps import Run, assert_equal

if not native.is_loaded():
    pytest.skip("our kernels alone serve these steps", allow_module_level=True)

WEIGHT = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
ROWS = (hs.QSpec(hs.uint8, hs.PerToken()), hs.QSpec(hs.int8, hs.PerToken(), symmetric=True))
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"bidirectional": True, "num_layers": 2, "batch_first": True},
    {"bias": False, "num_layers": 2},
)
CASES = [(kind, options) for kind in (nn.LSTM, nn.GRU, nn.RNN) for options in OPTIONS]
CASES += [(nn.RNN, {"nonlinearity": "relu"}), (nn.LSTM, {"proj_size": 5, "num_layers": 2})]


@pytest.mark.parametrize("spec", ROWS, ids=str)
@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
@pytest.mark.parametrize("with_state", [True, False])
def test_recurrent_layers(kind: Any, options: Any, spec: hs.QSpec, *, with_state: bool) -> None:
    """All layers, directions, biases, projections and states."""
    torch.manual_seed(0)
    layer = kind(12, 16, **options)
    weights = tuple(
        hs.quantize(w.detach(), WEIGHT) if w.ndim == 2 else w.detach() for w in layer._flat_weights
    )
    count = layer.num_layers * (1 + layer.bidirectional)
    sizes = [layer.proj_size or 16] + ([16] if kind is nn.LSTM else [])
    states = [Run(torch.randn(count, 4, size)) if with_state else None for size in sizes]
    flags = (layer.bias, layer.num_layers, layer.bidirectional, layer.batch_first)
    relu = (layer.mode == "RNN_RELU",) if kind is nn.RNN else ()
    name = layer.mode.lower().split("_")[0]
    assert_equal(name, Run(torch.randn(4, 4, 12)), *states, weights, *flags, *relu, spec)
