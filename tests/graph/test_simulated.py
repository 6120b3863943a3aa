"""A simulated program is the integer one but for float rounding; rehearsals see all batches."""

import inspect
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.engines.reference import ReferenceEngine
from halfstep.graph.channel_clamp import CLAMP_CHANNELS
from halfstep.graph.export import arguments
from halfstep.graph.program import Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.rehearsal import live_bytes, rehearse
from halfstep.graph.run import Plan
from halfstep.graph.simulated import simulated
from halfstep.graph.trees import Branch
from halfstep.tensor import QTensor


class Residual(nn.Module):
    """A sum that is fused, a clamp that is, a float operator, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a = nn.Conv2d(3, 5, 3), nn.Conv2d(5, 6, 1)
        self.b = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.c, self.fc = nn.Conv2d(6, 6, 1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 4)."""
        x = self.a(nn.functional.relu6(self.stem(x)))
        x = torch.relu(self.c(self.b(x)) + x)
        return self.fc(nn.functional.softmax(x.mean((2, 3)), -1))


def given(x: Tensor) -> Branch:
    """The arguments of a program for one tensor."""
    return arguments(inspect.signature(Residual().forward), (x,), {})


X = torch.linspace(-2, 2, 4 * 3 * 8 * 8).reshape(4, 3, 8, 8).sin()


@pytest.fixture(scope="module")
def result() -> hs.Result:
    """The network in integers, its inner channels equalized."""
    torch.manual_seed(0)
    recipe = hs.recipes.static_int8().with_remedies(hs.remedies.Equalize())
    return hs.ptq.quantize(Residual(), X, recipe)


def parts(result: hs.Result) -> tuple[Quantized, dict[str, Tensor]]:
    """The calibrated program, and what its weights stand for."""
    (part,) = result.parts[""]
    assert isinstance(part, Quantized)
    found = {
        name: result.model.get_parameter(part.program.parameters[name]) for name in part.weights
    }
    return part, {name: one.floats() for name, one in found.items() if isinstance(one, QTensor)}


def test_it_returns_what_the_integers_return(result: hs.Result) -> None:
    """To within 1e-3 of the largest output: a code that falls the other way is seldom."""
    part, weights = parts(result)
    program = simulated(part, weights, ReferenceEngine().capabilities)
    expected = result.model(X)
    found = Plan(program).run(result.model, given(X))
    assert (expected - found).abs().max() <= 1e-3 * expected.abs().max()


def test_layers_keep_their_names(result: hs.Result) -> None:
    """Every step of the float program is there, so that layers are seen before they are rounded."""
    part, weights = parts(result)
    program = simulated(part, weights, ReferenceEngine().capabilities)
    names = {step.name for step in program.steps}
    assert {step.name for step in part.program.steps} <= names
    assert not set(weights) & set(program.parameters)


def test_what_is_clamped_by_channel_has_the_scale_of_the_result(result: hs.Result) -> None:
    """So that nothing is rounded on the way but once."""
    part, _ = parts(result)
    clamps = [step for step in part.program.steps if step.op == CLAMP_CHANNELS]
    assert clamps
    for clamp in clamps:
        assert part.edges[clamp.args[0].name] is part.edges[clamp.name]


def test_a_rehearsal_sees_all_batches_and_uses_what_it_is_given(result: hs.Result) -> None:
    """Every step once, with a value for each batch; what is sent back, the next ones read."""
    part, weights = parts(result)
    program = simulated(part, weights, ReferenceEngine().capabilities)
    seen: dict[str, list[Any]] = {}

    def see(step: Step, values: Sequence[Any]) -> list[Any]:
        seen[step.name] = list(values)
        return [torch.zeros_like(v) for v in values] if step.source == "stem" else list(values)

    rehearse(program, result.model, [given(X[:1]), given(X[1:])], see)
    assert list(seen) == [step.name for step in program.steps]
    assert [value.shape[0] for value in seen["conv2d"]] == [1, 3]
    clamp = next(step.name for step in program.steps if step.op == CLAMP_CHANNELS)
    assert all((value == 0).all() for value in seen[clamp])


def test_live_bytes_count_what_is_there_at_once(result: hs.Result) -> None:
    """More than the largest value and its operand, less than all values."""
    part, _ = parts(result)
    sizes = {
        name: 4 * torch.Size(shape).numel()
        for name, shape in part.shapes.items()
        if name not in part.program.parameters and name not in part.program.constants
    }
    found = live_bytes(part.program, part.shapes)
    assert max(sizes.values()) < found < sum(sizes.values())
