"""A small model, its data, and the scales that were found for it."""

import torch
from torch import nn

from halfstep.flows.result import Result
from tests.graph.zoo import rand


def mlp() -> nn.Sequential:
    """Always the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )


X = rand(64, 6)


def scales(result: Result) -> dict[str, float]:
    """The scales of all values."""
    (part,) = result.parts[""]
    return {name: edge.scale for name, edge in part.edges.items()}
