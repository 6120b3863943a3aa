"""How far a quantized model is from its float one, and an engine from the reference."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from halfstep.errors import ArgumentTypeError
from halfstep.graph.edges import Edge
from halfstep.graph.engine import Engine, Runnable
from halfstep.graph.product import Forward, sharing
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Hook, Plan
from halfstep.graph.trees import Branch, leaves, split
from halfstep.numerics.metrics import sqnr_of

# What convert adds to the name of a value for its codes.
_CODES = "_q"


def floats(output: Any) -> list[Tensor]:
    """The float tensors in what a model returns."""
    try:
        found = leaves(split(output))
    except ArgumentTypeError:  # packed sequences
        found = iter(tree_leaves(output))
    return [x.detach() for x in found if isinstance(x, Tensor) and x.is_floating_point()]


class Noise:
    """Signal and noise of many pairs of outputs: ``SQNR = 10 log10(sum y^2 / sum (y - y')^2)``."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0
        self.pairs = 0
        self.batches = 0

    def add(self, expected: list[Tensor], found: list[Tensor]) -> None:
        """Take in the outputs for one batch, if they can be compared."""
        if [one.shape for one in expected] != [one.shape for one in found]:
            return
        for one, other in zip(expected, found, strict=True):
            signal, noise = _sums(one.double(), other.double())
            self.signal += signal
            self.noise += noise
        self.pairs += len(expected)
        self.batches += 1

    @property
    def sqnr(self) -> float | None:
        """In dB; None where nothing was compared."""
        return sqnr_of(self.signal, self.noise) if self.pairs else None


def _sums(y: Tensor, other: Tensor) -> tuple[float, float]:
    """Signal and noise; what is infinite in both, as where a mask is, counts for neither."""
    alike = (y == other) & y.isinf()
    if alike.any():
        y, other = y[~alike], other[~alike]
    return float(y.square().sum()), float((y - other).square().sum())


@dataclass(frozen=True)
class WorstEdge:
    """The value between two steps that quantizing harms most."""

    layer: str
    sqnr: float


def edge_noise(
    quantized: Quantized,
    plan: Plan,
    runnable: Runnable,
    modules: tuple[nn.Module, nn.Module],
    given: Branch,
) -> dict[str, float]:
    """The SQNR of every edge, from the float program and the integer one on the same input.

    modules: the float one and the one with integers.
    """
    expected: dict[str, Tensor] = {}
    codes: dict[str, Tensor] = {}
    plan.run(modules[0], given, _kept(expected, quantized.edges))
    runnable.run(modules[1], given, _kept(codes, {f"{name}{_CODES}" for name in quantized.edges}))
    return {
        name: _sqnr(expected[name], _values(codes[f"{name}{_CODES}"], edge))
        for name, edge in quantized.edges.items()
        if name in expected and f"{name}{_CODES}" in codes
    }


def _kept(into: dict[str, Tensor], names: Iterable[str]) -> Hook:
    wanted = set(names)

    def hook(step: Step, value: Any) -> Any:
        if step.name in wanted and isinstance(value, Tensor):
            into[step.name] = value.detach().clone()
        return value

    return hook


def _values(codes: Tensor, edge: Edge) -> Tensor:
    return (codes.double() - edge.zero_point) * edge.scale


def _sqnr(expected: Tensor, found: Tensor) -> float:
    noise = Noise()
    noise.add([expected], [found])
    return math.nan if noise.sqnr is None else noise.sqnr


class Difference:
    """Where an engine's integers differ from the reference's, over any number of runs."""

    def __init__(self) -> None:
        self.values = self.elements = self.differing = self.most = 0
        self.first = ""

    def add(self, name: str, found: Tensor, expected: Tensor) -> None:
        """Compare one value of both."""
        self.values += 1
        self.elements += expected.numel()
        if torch.equal(found, expected):
            return
        steps = (found.long() - expected.long()).abs()
        self.first = self.first or name
        self.most = max(self.most, int(steps.max()))
        self.differing += int((steps != 0).sum())

    def __str__(self) -> str:
        if not self.values:
            return "no integers to compare with the reference"
        if not self.differing:
            values = f"{self.values} value{'s' * (self.values != 1)}"
            return f"equal to the reference in all {self.elements} integers of {values}"
        return (
            f"differs from the reference in {self.differing} of {self.elements} integers, by at "
            f"most {self.most} steps, first in {self.first}"
        )


@dataclass
class _BothPlans:
    """A plan that runs the reference beside it, and compares the integers of both."""

    tested: Runnable
    reference: Runnable
    difference: Difference

    @property
    def program(self) -> Program:
        """The tested one's."""
        return self.tested.program

    def takes(self, given: Branch) -> bool:
        """Whether both take it."""
        return self.tested.takes(given)

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the tested one returns, after its integers were compared."""
        expected: dict[str, Tensor] = {}
        found: dict[str, Tensor] = {}
        self.reference.run(module, given, _integers(expected))
        result = self.tested.run(module, given, _integers(found))
        for name in found.keys() & expected.keys():
            self.difference.add(name, found[name], expected[name])
        return result


def _integers(into: dict[str, Tensor]) -> Hook:
    def hook(step: Step, value: Any) -> Any:
        if step.name.endswith(_CODES) or step.op.startswith("int."):
            into.update(
                (f"{step.name}.{place}" if place else step.name, one)
                for place, one in enumerate(tree_leaves(value))
                if isinstance(one, Tensor) and not one.is_floating_point()
            )
        return value

    return hook


def against_reference(model: nn.Module, reference: Engine) -> tuple[nn.Module, Difference]:
    """A quantized model that notes where its engine differs from the reference.

    It shares tensors and plans with the one that is given.
    """
    twin = sharing(model)
    difference = Difference()
    for module, other in zip(model.modules(), twin.modules(), strict=True):
        forward, copied = vars(module).get("forward"), vars(other).get("forward")
        if isinstance(forward, Forward) and isinstance(copied, Forward):
            plans = [
                _BothPlans(plan, reference.plan(part, other), difference)
                if isinstance(part, Quantized)
                else plan
                for part, plan in zip(forward.programs, forward.plans[False], strict=True)
            ]
            vars(copied)["plans"] = dict.fromkeys((True, False), plans)
    return twin, difference
