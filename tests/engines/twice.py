"""Quantized models that run twice, on the torch engine and on the formulas, step beside step."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from halfstep.engines import onednn
from halfstep.engines.race import Race
from halfstep.engines.torch_engine import TorchEngine
from halfstep.graph.convert import convert
from halfstep.graph.frozen import Bind, Bound, Frozen, Lookup
from halfstep.graph.product import Forward
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Hook
from halfstep.graph.trees import Branch
from halfstep.spec import Capabilities


@dataclass
class Tally:
    """What was compared, and what ran.

    steps, elements: compared in all runs.
    bound: integer steps for which a kernel was chosen, by operator.
    by_onednn: those of them that oneDNN may run.
    """

    steps: int = 0
    elements: int = 0
    bound: Counter[str] = field(default_factory=Counter)
    by_onednn: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, step: Step, found: Any, expected: Any) -> None:
        """Compare what a step brought in both runs."""
        self.steps += 1
        self.elements += sum(each.numel() for each in _tensors(expected))
        difference = difference_between(found, expected)
        if difference:
            self.differences.append(f"{step}\n  {difference}")


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def difference_between(found: Any, expected: Any) -> str:
    """How two values differ: in form, or in how many elements by how many steps; "" if not."""
    ours, theirs = _tensors(found), _tensors(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} tensors instead of {len(theirs)}"
    return next(filter(None, map(_difference, ours, theirs)), "")


def _difference(found: Tensor, expected: Tensor) -> str:
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        was = f"{found.dtype} of shape {tuple(found.shape)}"
        return f"{was} instead of {expected.dtype} of shape {tuple(expected.shape)}"
    differing = _bits(found) != _bits(expected)
    if not differing.any():
        return ""
    by = (found.double() - expected.double()).abs().max().item()
    unit = "" if expected.is_floating_point() else " steps"
    return f"{int(differing.sum())} of {expected.numel()} elements differ, by up to {by:g}{unit}"


def _bits(x: Tensor) -> Tensor:
    """Float32 as integers, so that a NaN equals itself and 0.0 is not -0.0."""
    return x.contiguous().view(torch.int32) if x.dtype == torch.float32 else x


class AllAlike:
    """A race in which every function runs, and has to return the same."""

    def __init__(self, race: Race, name: str) -> None:
        self.race, self.name = race, name

    def __call__(self, *args: Any) -> Any:
        """What all of them return."""
        first, *others = (function(*args) for function in self.race.functions)
        for other in others:
            difference = difference_between(other, first)
            assert not difference, f"{self.name}: kernels that race return different: {difference}"
        return self.race(*args)


def without_losers(bind: Bind, tally: Tally) -> Bind:
    """The same kernels, with all of a race compared; counts them."""

    def bound(step: Step, lookup: Lookup) -> Bound | None:
        found = bind(step, lookup)
        if found is None:
            return None
        race = found.function if isinstance(found.function, Race) else None
        functions = race.functions if race else (found.function,)
        tally.bound[step.op] += 1
        tally.by_onednn += any(each.__module__ == onednn.__name__ for each in functions)
        return Bound(AllAlike(race, str(step)), found.args) if race else found

    return bound


@dataclass
class Twice:
    """An engine that runs the torch engine's plan, and the same steps by their formulas."""

    tally: Tally = field(default_factory=Tally)
    tested: TorchEngine = field(default_factory=TorchEngine)

    @property
    def name(self) -> str:
        """The tested one's."""
        return self.tested.name

    @property
    def capabilities(self) -> Capabilities:
        """The tested one's."""
        return self.tested.capabilities

    def plan(self, quantized: Quantized, module: nn.Module) -> "_Both":
        """Both plans."""
        plan = self.tested.plan(quantized, module)
        assert plan.bind is not None
        plan.bind = without_losers(plan.bind, self.tally)
        return _Both(plan, Frozen(convert(quantized, self.capabilities)), self.tally)


@dataclass
class _Both:
    tested: Frozen
    formulas: Frozen
    tally: Tally

    @property
    def program(self) -> Program:
        """The tested one's."""
        return self.tested.program

    def takes(self, given: Branch) -> bool:
        """Whether both take it."""
        return self.tested.takes(given)

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the tested one returns, after every step of it was compared."""
        expected: dict[str, tuple[Step, Any]] = {}
        found: dict[str, tuple[Step, Any]] = {}
        self.formulas.run(module, given, _into(expected))
        result = self.tested.run(module, given, _into(found))
        assert list(found) == list(expected)
        for name, (step, value) in expected.items():
            self.tally.add(step, found[name][1], value)
        return result


def _into(values: dict[str, tuple[Step, Any]]) -> Hook:
    """A hook that keeps copies, since memory may be written to later."""

    def hook(step: Step, value: Any) -> Any:
        values[step.name] = (step, _pytree.tree_map_only(Tensor, torch.clone, value))
        return value

    return hook


def forwards(model: nn.Module) -> list[Forward]:
    """What runs the programs of a model."""
    found = (vars(module).get("forward") for module in model.modules())
    return [each for each in found if isinstance(each, Forward)]


def running_twice(model: nn.Module) -> tuple[nn.Module, Tally]:
    """A copy of a quantized model that compares each step with its formula, and what it found."""
    twin, engine = copy.deepcopy(model), Twice()
    for forward in forwards(twin):
        forward.engine = engine
    return twin, engine.tally


def with_threads(count: int, function: Callable[[], Any]) -> Any:
    """What a function returns with this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return function()
    finally:
        torch.set_num_threads(before)
