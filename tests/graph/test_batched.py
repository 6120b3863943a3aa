"""A batch of one around what is given a single image."""

import inspect

import pytest
import torch
from torch import nn

from halfstep.graph.batched import batched
from halfstep.graph.export import arguments, export
from halfstep.graph.normalize import normalized
from halfstep.graph.run import Plan
from tests.graph.zoo import rand

LAYERS = {
    "conv": (nn.Conv2d(4, 6, 3), (4, 9, 8)),
    "circular": (nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), (4, 9)),
    "transposed": (nn.ConvTranspose3d(4, 6, 2), (4, 3, 4, 5)),
    "max_pool": (nn.MaxPool2d(2), (4, 9, 8)),
    "avg_pool": (nn.AvgPool1d(2), (4, 9)),
    "adaptive": (nn.AdaptiveAvgPool2d(2), (4, 9, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_single_image(name: str) -> None:
    """The layer gets a batch of one, and the program computes the layer's own bits."""
    layer, shape = LAYERS[name]
    x = rand(*shape)
    before = normalized(export(layer, (x,)), layer)
    after = batched(before)
    assert len(after.steps) == len(before.steps) + 2
    given = arguments(inspect.signature(layer.forward), (x,), {})
    assert torch.equal(Plan(after).run(layer, given), layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_stays_as_it_is(name: str) -> None:
    """Nothing is put around what has a batch already."""
    layer, shape = LAYERS[name]
    program = export(layer, (rand(2, *shape),))
    assert batched(program).steps == program.steps
