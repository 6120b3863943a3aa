"""The number of dimensions, where it is known, is the value's own."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.graph.export import arguments, export
from halfstep.graph.program import Step
from halfstep.graph.ranks import ranks
from halfstep.graph.run import Plan
from tests.graph.passes import captured, exported
from tests.graph.zoo import rand
from tests.graph.zoo_cases import WHOLE

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@pytest.mark.parametrize("name", WHOLE)
def test_the_zoo(name: str) -> None:
    """What is said of a value is true of it when the program runs."""
    model, found = captured(name)
    (program,) = found.programs[""]
    known = ranks(program)

    def compare(step: Step, value: Any) -> Any:
        if isinstance(value, Tensor) and step.name in known:
            assert value.ndim == known[step.name], step
        return value

    args, kwargs = WHOLE[name].arguments()[0]
    given = arguments(inspect.signature(model.forward), args, kwargs)
    with torch.no_grad():
        Plan(program).run(model, given, compare)


def test_what_a_network_of_images_does() -> None:
    """From the image to the scores every rank is known."""
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    program = exported(model, rand(2, 3, 8, 8))
    assert [ranks(program)[step.name] for step in program.steps] == [4] * 5 + [2] * 2


def test_what_depends_on_sizes_is_not_guessed() -> None:
    """A squeeze of every dimension of size 1 has no rank beforehand."""

    class Squeezed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.squeeze() * 2

    program = export(Squeezed(), (rand(2, 1, 3),))
    assert set(ranks(program)) == {"x"}
