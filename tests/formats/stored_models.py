"""Models that run programs, calibrated by hand, for the tests of the model file."""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.graph.capture import capture
from halfstep.graph.convert import convert
from halfstep.graph.edges import Edge
from halfstep.graph.engine import Runnable
from halfstep.graph.export import arguments
from halfstep.graph.frozen import Frozen
from halfstep.graph.operators import resolve
from halfstep.graph.product import install, product, put
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.run import Plan
from halfstep.spec import Capabilities, PerChannel, QSpec, int8, uint8
from halfstep.tensor import quantize

WEIGHT = QSpec(int8, PerChannel(0), symmetric=True)
_WITH_WEIGHTS = ("aten.conv2d", "aten.linear")
_WITHOUT = ("aten.relu", "aten.add.Tensor", "aten.max_pool2d")


@dataclass(frozen=True)
class ReferenceEngine:
    """Runs the integer steps by their formulas."""

    name: str = "reference"

    @property
    def capabilities(self) -> Capabilities:
        """Convolutions, linear layers, sums and what moves values."""
        kinds = frozenset({"conv", "linear", "add", "clamp", "move", "max_pool"})
        return Capabilities(engine=self.name, integer_ops=kinds, dtypes=(uint8, int8))

    def plan(self, quantized: Quantized, module: nn.Module) -> Runnable:
        """The program made ready to run here."""
        return Frozen(convert(quantized, self.capabilities))


class Net(nn.Module):
    """Two convolutions with a residual, and a classifier; 400 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(64, 3)
        self.register_buffer("offset", torch.full((3,), 0.25), persistent=False)

    def forward(self, image: Tensor, scale: float = 2.0) -> dict[str, Tensor]:
        """(N, 1, 8, 8) to logits (N, 3)."""
        x = F.relu(self.conv1(image))
        y = F.max_pool2d(F.relu(self.conv2(x) + x), 2, 2)
        return {"logits": self.fc(y.flatten(1)) * scale + self.offset}


class Odd(nn.Module):
    """Decides on values, so that only its parts are programs; has a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) to (N, 2)."""
        h = self.first(x)
        return self.second(h if h.sum() > 0 else -h)

    def encode(self, x: Tensor) -> Tensor:
        """The inner values."""
        return self.first(x)


def by_hand(model: nn.Module, example: Tensor) -> nn.Module:
    """The model with int8 weights and uint8 edges between its steps, on the reference engine."""
    model = model.eval()
    captured = capture(model, (example,))
    twin = product(model, captured)
    parts: dict[str, list[Any]] = {}
    for path, programs in captured.programs.items():
        module = twin.get_submodule(path)
        parts[path] = [_calibrated(_complete(program), module) for program in programs]
    for path, calibrated in parts.items():
        for part in calibrated:
            _quantize_weights(twin, path, part)
    install(twin, parts, ReferenceEngine())
    return twin


def _complete(program: Program) -> Program:
    """The program with every argument of its steps, defaults included."""
    steps = []
    for step in program.steps:
        function: Any = resolve(step.op)
        missing = function._schema.arguments[len(step.args) :]
        defaults = tuple(_plain(each.default_value) for each in missing if not each.kwarg_only)
        steps.append(dataclasses.replace(step, args=(*step.args, *defaults)))
    return dataclasses.replace(program, steps=tuple(steps))


def _plain(default: Any) -> Any:
    return tuple(default) if isinstance(default, list) else default


def _calibrated(program: Program, module: nn.Module) -> Quantized:
    """Edges from the values that the program sees on random inputs."""
    edges: dict[str, Edge] = {}
    inputs = {
        given.value: torch.randn([2, 4] if given.ndim == 2 else [2, 1, 8, 8])
        for given in program.inputs
    }

    def watch(step: Step, value: Any) -> Any:
        if isinstance(value, Tensor):
            edges[step.name] = _edge(value)
        return value

    signature = inspect.signature(type(module).forward.__get__(module))
    given = arguments(signature, tuple(inputs.values()), {})
    with torch.no_grad():
        Plan(program).run(module, given, watch)
    edges |= {value.name: _edge(x) for value, x in inputs.items()}
    decisions = {step.name: _decision(step, edges) for step in program.steps}
    weights = {
        step.args[1].name: WEIGHT for step in program.steps if step.op.startswith(_WITH_WEIGHTS)
    }
    return Quantized(program, edges, decisions, weights)


def _decision(step: Step, edges: Mapping[str, Edge]) -> Decision:
    if step.op.startswith(_WITH_WEIGHTS):
        return Decision(Execution.INTEGER, weight=WEIGHT)
    if step.op.startswith(_WITHOUT) and all(value.name in edges for value in step.reads()):
        return Decision(Execution.INTEGER)
    return Decision(Execution.FLOAT, "no integer form")


def _edge(x: Tensor) -> Edge:
    spec = QSpec(uint8)
    q = quantize(x, spec)
    return Edge(spec, q.scale.item(), int(q.zero_point.item()))


def _quantize_weights(model: nn.Module, path: str, part: Quantized) -> None:
    for step in part.program.steps:
        if step.op.startswith(_WITH_WEIGHTS):
            inner = part.program.parameters[step.args[1].name]
            name = f"{path}.{inner}".removeprefix(".")
            weight = model.get_parameter(name).detach()
            put(model, name, quantize(weight, WEIGHT))
