"""A model with its batch norms folded, and what must hold of it."""

from typing import Any

import torch
from torch import Tensor, nn

from halfstep.graph.capture import Captured, Region
from halfstep.graph.check import check
from halfstep.graph.fold import Folded, fold
from halfstep.graph.product import product
from halfstep.graph.program import Program
from tests.graph.passes import exported
from tests.graph.zoo import rand

NORM = "aten.batch_norm.default"


def put(module: nn.Module, program: Program, weights: Any) -> None:
    """Set the parameters that a folded program needs."""
    for name, weight in weights.items():
        owner, _, attribute = program.parameters[name].rpartition(".")
        old = module.get_submodule(owner)._parameters[attribute]
        assert old is not None
        assert (weight.dtype, weight.shape) == (old.dtype, old.shape)
        module.get_submodule(owner)._parameters[attribute] = nn.Parameter(weight)


def folded_model(model: nn.Module, folded: Folded) -> nn.Module:
    """A copy of a model that runs the folded program over the folded weights."""
    check(folded.program, model)
    twin = product(model, Captured((Region("", (folded.program,)),)))
    put(twin, folded.program, folded.weights)
    return twin


def norms(program: Program) -> list[str]:
    """The batch norms of a program."""
    return [step.name for step in program.steps if step.op == NORM]


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal to within a share of the largest value."""
    limit = tolerance * max(float(expected.abs().max()), 1e-30)
    assert float((found - expected).abs().max()) <= limit


def assert_folds(model: nn.Module, *args: Tensor, tolerance: float = 1e-5) -> Folded:
    """All batch norms of the model go, and its output stays."""
    randomize(model)
    program = exported(model, *args)
    folded = fold(program, model)
    assert norms(program)
    assert not norms(folded.program)
    assert not folded.reasons
    assert list(folded.layers) == norms(program)
    assert all("running" not in name for name in folded.program.parameters)
    with torch.no_grad():
        found = folded_model(model, folded)(*args)
        assert_close(found.double(), model(*args).double(), tolerance)
    return folded


def assert_stays(model: nn.Module, *args: Tensor) -> str:
    """One batch norm stays, and nothing changes; the reason."""
    program = exported(model, *args)
    folded = fold(program, model)
    assert norms(folded.program) == norms(program) == list(folded.reasons)
    assert not folded.weights
    assert torch.equal(folded_model(model, folded)(*args), model(*args))
    (why,) = folded.reasons.values()
    return why


def randomize(model: nn.Module) -> None:
    """Statistics and factors that are not 0 and 1."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None:
                module.running_mean.copy_(rand(module.num_features))
                module.running_var.copy_(rand(module.num_features).square() + 0.1)
            if module.affine:
                with torch.no_grad():
                    module.weight.copy_(rand(module.num_features) * 2)
                    module.bias.copy_(rand(module.num_features + 1)[1:])
