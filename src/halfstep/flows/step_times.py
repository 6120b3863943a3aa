"""How long each operator of a quantized model takes, in integers and in float."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from halfstep.flows.another_engine import with_engine
from halfstep.flows.batches import Forward as Run
from halfstep.flows.batches import inference, run
from halfstep.flows.parts import joined
from halfstep.graph.convert import convert
from halfstep.graph.engine import Engine
from halfstep.graph.flow import Flow
from halfstep.graph.frozen import Frozen
from halfstep.graph.product import Forward
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.regions import find_regions
from halfstep.graph.run import Hook
from halfstep.graph.support import Support
from halfstep.graph.trees import Branch
from halfstep.spec import Capabilities

_ROUNDS, _WARM = 9, 2
# An engine that runs nothing in integers: the float form of the same program.
_NOTHING = Capabilities(engine="float", integer_ops=frozenset(), dtypes=(), per_row=False)
_INTO_CODES = ("int.quantize", "int.quantize_rows")


@dataclass(frozen=True, slots=True)
class StepTime:
    """The milliseconds of one operator, with what is fused to it and with its conversions."""

    float_ms: float
    ms: float


def step_times(
    model: nn.Module, example: Any, engine: Engine, *, forward: Run | None = None
) -> dict[str, StepTime]:
    """The times of the operators of a quantized model, by path and value name.

    example: what the model is called with: a tensor, a tuple of arguments, or keyword arguments.
    forward: how it is called, ``forward(model, example)``, if in another way.

    Each is the median over several calls. What runs as one step has one time, under the name of
    the first operator in it.
    """
    integer, floating = _Clock(engine), _Clock(None)
    for clock in (integer, floating):
        twin = with_engine(model, clock)
        with inference(twin):
            for _ in range(_WARM):
                run(twin, example, forward)
            clock.seconds.clear()
            for _ in range(_ROUNDS):
                run(twin, example, forward)
    found: dict[str, StepTime] = {}
    for path, part in _parts(model):
        names = _Names(part, engine.capabilities)
        times = names.sums(integer.of(part), names.integer(integer.programs[id(part)]))
        before = names.sums(floating.of(part), names.main)
        found |= {
            joined(path, name): StepTime(before.get(name, 0.0), times[name]) for name in times
        }
    return found


def _parts(model: nn.Module) -> list[tuple[str, Quantized]]:
    found = [(path, vars(module).get("forward")) for path, module in model.named_modules()]
    return [
        (path, part)
        for path, forward in found
        if isinstance(forward, Forward)
        for part in forward.programs
        if isinstance(part, Quantized)
    ]


@dataclass
class _Clock:
    """An engine that notes how long each step takes; without an inner one, the float form."""

    inner: Engine | None
    name: str = "clock"
    seconds: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    programs: dict[int, Program] = field(default_factory=dict)

    @property
    def capabilities(self) -> Capabilities:
        """What the inner engine runs."""
        return _NOTHING if self.inner is None else self.inner.capabilities

    def plan(self, quantized: Quantized, module: nn.Module) -> "_Clocked":
        """The inner engine's plan, with a clock."""
        self.programs[id(quantized)] = convert(quantized, self.capabilities)
        if self.inner is None:
            return _Clocked(self, quantized, Frozen(self.programs[id(quantized)]))
        return _Clocked(self, quantized, self.inner.plan(quantized, module))

    def of(self, part: Quantized) -> Mapping[str, float]:
        """The median milliseconds of each step of a part."""
        noted = self.seconds.get(id(part), {})
        return {name: statistics.median(times) * 1e3 for name, times in noted.items()}

    def __deepcopy__(self, memo: dict[int, object]) -> "_Clock":
        return self


class _Clocked:
    """A runnable whose steps are timed."""

    def __init__(self, clock: _Clock, part: Quantized, inner: Any) -> None:
        self.clock, self.part, self.inner = clock, part, inner
        self.program: Program = inner.program

    def takes(self, given: Branch) -> bool:
        """Whether it is for arguments of this kind."""
        return bool(self.inner.takes(given))

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """Run, and note the time from one step to the next."""
        noted = self.clock.seconds.setdefault(id(self.part), defaultdict(list))
        last = time.perf_counter()

        def note(step: Step, value: Any) -> Any:
            nonlocal last
            now = time.perf_counter()
            noted[step.name].append(now - last)
            last = time.perf_counter()
            return value

        return self.inner.run(module, given, note)


class _Names:
    """Under which operator the time of a step is counted."""

    def __init__(self, part: Quantized, capabilities: Capabilities) -> None:
        self.regions = find_regions(Support(part, capabilities))

    def main(self, name: str) -> str:
        """The first operator of what a value is part of."""
        region = self.regions.get(name)
        return name if region is None else region.main.name

    def integer(self, program: Program) -> Callable[[str], str]:
        """The same for a converted program, whose conversions count for who needs them."""
        flow = Flow(program)

        def owner(name: str) -> str:
            step = flow.maker[name]
            if step.op in _INTO_CODES:
                return owner(flow.readers[name][0].name)
            if step.op == "int.dequantize" and step.args[0].name in flow.maker:
                return owner(step.args[0].name)
            return self.main(name.removesuffix("_q"))

        return owner

    @staticmethod
    def sums(times: Mapping[str, float], owner: Callable[[str], str]) -> dict[str, float]:
        """The times, added up under their owners."""
        found: dict[str, float] = defaultdict(float)
        for name, ms in times.items():
            found[owner(name)] += ms
        return dict(found)
