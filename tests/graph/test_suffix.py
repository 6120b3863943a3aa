"""Versions of a program on the same data: what they share runs once, and the results are theirs."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.engines.torch_engine import TorchEngine
from halfstep.graph.export import arguments
from halfstep.graph.kernels import Kernels
from halfstep.graph.run import find
from halfstep.graph.suffix import Suffixes, Version
from tests.graph import zoo
from tests.graph.zoo import rand

KEPT = {
    "cnn": ("0.conv1", "0.conv2", "3"),
    "mlp": ("0", "2", "4"),
    "transformer": ("self_attn", "linear1", "linear2"),
    "lstm": ("0", "1"),
}


class Lstm(nn.Module):
    """Two names, as a module list has them, for an LSTM and what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("0", nn.LSTM(6, 5, batch_first=True))
        self.add_module("1", nn.Linear(5, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The last layer's output, and the last state."""
        first, second = self.children()
        y, (h, _) = first(x)
        return second(y), {"state": h}


def model_of(name: str) -> tuple[nn.Module, Tensor]:
    """A small model and its input."""
    torch.manual_seed(0)
    if name == "cnn":
        return nn.Sequential(zoo.Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)), (
            rand(4, 3, 8, 8)
        )
    if name == "mlp":
        layers = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3)
        return nn.Sequential(*layers), rand(16, 6)
    if name == "transformer":
        return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), rand(4, 5, 8)
    return Lstm(), rand(4, 7, 6)


def runnable(result: hs.Result, kernels: Kernels, kind: type[Version] = Version) -> Version:
    """The one program of a quantized model as a version."""
    (part,) = result.parts[""]
    plan = TorchEngine().plan(part, result.model)
    tensors = {name: find(result.model, path) for name, path in plan.program.parameters.items()}
    return kind(plan.program, tensors, kernels, plan.bind)


def given_to(model: nn.Module, x: Tensor) -> Any:
    """The arguments of a program."""
    return arguments(inspect.signature(type(model).forward.__get__(model)), (x,), {})


def flat(output: Any) -> list[Tensor]:
    """All tensors of an output."""
    return torch.utils._pytree.tree_leaves(output)


@pytest.mark.parametrize("name", KEPT)
def test_each_version_returns_what_the_whole_model_returns(name: str) -> None:
    """Bit for bit, though weights were quantized anew and only the rest of each program ran."""
    model, x = model_of(name)
    recipe = hs.recipes.static_int8()
    rules = [[hs.Rule(kept, keep_float=True)] for kept in KEPT[name]]
    results = [hs.ptq.quantize(model, x, recipe.with_rules(*some)) for some in ([], *rules)]
    kernels = Kernels()
    first, *others = (runnable(result, kernels) for result in results)
    suffixes = Suffixes(first, others)
    found: dict[int, Any] = {}
    base = suffixes.run(given_to(model, x), found.__setitem__)
    assert sorted(found) == list(range(len(rules)))
    for result, output in zip(results, [base, *(found[one] for one in sorted(found))], strict=True):
        for expected, given in zip(flat(result.model(x)), flat(output), strict=True):
            assert torch.equal(expected, given)
    assert suffixes.cuts == sorted(suffixes.cuts)
    assert suffixes.cuts[-1] > 0


def test_a_version_that_is_the_same_runs_nothing() -> None:
    """All steps are shared, and its output is the first one's."""
    model, x = model_of("mlp")
    result, kernels = hs.ptq.quantize(model, x), Kernels()
    suffixes = Suffixes(runnable(result, kernels), [runnable(result, kernels)])
    assert suffixes.cuts == [len(suffixes.base.steps)]
    found: dict[int, Any] = {}
    assert torch.equal(suffixes.run(given_to(model, x), found.__setitem__), found[0])


def test_other_weights_are_another_version() -> None:
    """Equal steps over other tensors are not shared."""
    model, x = model_of("mlp")
    result, kernels = hs.ptq.quantize(model, x), Kernels()
    first = runnable(result, kernels)
    with torch.no_grad():
        result.model[2].weight = nn.Parameter(-result.model[2].weight, requires_grad=False)
    other = runnable(result, kernels)
    cut = Suffixes(first, [other]).cuts[0]
    assert 0 < cut < len(first.steps)
    assert Suffixes(first, [first]).cuts[0] > cut


def test_kernels_are_chosen_once() -> None:
    """What two versions share is one object, packed weights among it."""
    model, x = model_of("mlp")
    kernels = Kernels()
    kept = hs.recipes.static_int8().with_rules(hs.Rule("0", keep_float=True))
    first, other = (runnable(hs.ptq.quantize(model, x, recipe), kernels) for recipe in (None, kept))
    mine, its = (
        dict(zip((s.name for s in v.steps), v.functions, strict=True)) for v in (first, other)
    )
    last = first.steps[-1].name
    assert mine[last] is its[last]
    assert first.steps[-1].args is other.steps[-1].args


class Counted(Version):
    """Notes how many values are held at once."""

    held: int = 0

    def take(self, place: int, values: dict[str, Any]) -> None:
        """Run a step, and count."""
        super().take(place, values)
        self.held = max(self.held, len(values))


def test_no_more_values_are_held_than_are_needed() -> None:
    """A chain of thirty layers, in thirty versions, holds a few values at a time."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30))), rand(8, 4)
    kernels, recipe = Kernels(), hs.recipes.static_int8()
    result = hs.ptq.quantize(model, x, check="none")
    first = runnable(result, kernels, Counted)
    kept = [recipe.with_rules(hs.Rule(str(place), keep_float=True)) for place in (0, 15, 29)]
    others = [
        runnable(hs.ptq.quantize(model, x, one, check="none"), kernels, Counted) for one in kept
    ]
    Suffixes(first, others).run(given_to(model, x), lambda place, output: None)
    assert 0 < max(each.held for each in (first, *others) if isinstance(each, Counted)) <= 4
