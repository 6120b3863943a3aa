"""A function as a model, and its functional program."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.functional import Functional, functional
from halfstep.graph.in_place import changes, is_functional
from tests.graph.passes import cloned, runner, same
from tests.graph.zoo import rand


class Model(nn.Module):
    """A function of the inputs, with a buffer at hand."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.zeros(4))

    def forward(self, *inputs: Tensor) -> Any:
        """Apply the function."""
        return self.function(self, *inputs)


def rewritten(function: Callable[..., Any], *inputs: Tensor) -> tuple[Model, Functional]:
    """A model and its functional program."""
    model = Model(function).eval()
    program = export(model, inputs)
    assert list(changes(program))
    result = functional(program, model)
    check(result.program, model)
    assert bool(result.reasons) == (result.program is program)
    return model, result


def assert_rewritten(function: Callable[..., Any], *inputs: Tensor) -> list[str]:
    """The model's outputs, inputs and state afterwards are the program's, bit for bit."""
    model, result = rewritten(function, *inputs)
    assert not result.reasons
    assert is_functional(result.program)
    twin = runner(model, result.program)
    one, other = cloned(inputs), cloned(inputs)
    with torch.no_grad():
        first, second = model(*one), twin(*other)
    for a, b in zip(_flat(first), _flat(second), strict=True):
        assert a.dtype == b.dtype
        assert same(a, b)
    assert all(map(same, one, other))
    assert same(model.state, twin.state)
    return [step.op for step in result.program.steps]


def assert_refused(function: Callable[..., Any], *inputs: Tensor) -> str:
    """The program is left as it was; the reason."""
    model, result = rewritten(function, *inputs)
    assert len(result.reasons) == 1
    assert set(result.reasons) <= {step.name for step in changes(result.program)}
    twin = runner(model, result.program)
    assert all(map(same, _flat(model(*cloned(inputs))), _flat(twin(*cloned(inputs)))))
    return next(iter(result.reasons.values()))


def _flat(outputs: Any) -> list[Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


X = rand(4, 6)
