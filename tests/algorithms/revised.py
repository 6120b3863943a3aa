"""A model that runs a program as an algorithm revised it."""

from torch import nn

from halfstep.graph.check import check
from halfstep.graph.revision import Revision
from tests.graph.folding import put
from tests.graph.passes import runner


def revised_model(model: nn.Module, found: Revision) -> nn.Module:
    """A copy of a model that runs the revised program over the revised weights."""
    check(found.program, model)
    twin = runner(model, found.program)
    put(twin, found.program, found.weights)
    return twin
