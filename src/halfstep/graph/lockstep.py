"""A float program and its converted form, walked side by side, one step at a time.

The converted program is walked twice. One walk runs as it is, so that errors gather. In the other,
what every step brings is replaced by the float program's value, or its codes, so that each step
works on what it would be given if it alone were quantized. A value is dropped as soon as nobody
needs it, so that no more is held than while three programs run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from halfstep.graph.brought import Brought, brought
from halfstep.graph.chance import draws
from halfstep.graph.edges import Edge
from halfstep.graph.flow import Flow
from halfstep.graph.integer_codes import operand
from halfstep.graph.program import Program, Step
from halfstep.graph.run import Walk
from halfstep.graph.trees import Branch, match
from halfstep.numerics import ops


class Walkable(Protocol):
    """A program made ready to run whose steps can be seen one by one: a plan, or a frozen one."""

    @property
    def program(self) -> Program:
        """The program."""
        ...

    def takes(self, given: Branch) -> bool:
        """Whether it is for arguments of this kind."""
        ...

    def walk(self, module: nn.Module, given: Branch) -> Walk:
        """The steps one by one."""
        ...


@dataclass(frozen=True)
class Moment:
    """A value, at the moment when all walks have it.

    of: what it is. expected: in float.
    local: what its step made of float inputs. found: what it is with all errors so far. Both are in
        float too; None where the step only converts, and found also where no such walk is made.
    values: the float values at hand: those that were asked for, and this one.
    """

    of: Brought
    expected: Any
    local: Any
    found: Any
    values: Mapping[str, Any]


See: TypeAlias = Callable[[Moment], None]


class LockStep:
    """A float program beside its converted form; ``edges`` are the formats of codes.

    wanted: for a value, the names of others that are to be at hand at its moment.
    is_taught: whether the local walk is made; without, the moments have no ``local``.

    >>> import inspect, torch
    >>> from halfstep.graph.export import arguments, export
    >>> from halfstep.graph.lockstep import LockStep
    >>> from halfstep.graph.run import Plan
    >>> model, x = torch.nn.Linear(2, 1), torch.ones(3, 2)
    >>> plan = Plan(export(model, (x,)))
    >>> given = arguments(inspect.signature(model.forward), (x,), {})
    >>> moments = []
    >>> y = LockStep(plan, plan, {}).run((model, model), (given, given), moments.append)
    >>> torch.equal(y, model(x)), [torch.equal(m.expected, m.found) for m in moments]
    (True, [True])
    """

    def __init__(
        self,
        plan: Walkable,
        converted: Walkable,
        edges: Mapping[str, Edge],
        *,
        wanted: Mapping[str, Iterable[str]] | None = None,
        is_taught: bool = True,
    ) -> None:
        self.plan, self.converted, self.edges, self.is_taught = plan, converted, edges, is_taught
        program = plan.program
        moving = {given.value.name for given in program.inputs}
        moving |= {step.name for step in program.steps}
        moving -= Flow(program).static
        found = brought(converted.program, moving)
        self._brought = {each.step.name: each for each in found}
        self._needed, self._last = _schedule(found, wanted or {})

    def run(
        self,
        modules: tuple[nn.Module, nn.Module],
        given: tuple[Branch, Branch | None],
        see: See,
    ) -> Any:
        """What the float program returns; ``see`` is shown each value.

        modules: the float one, and the one with integers.
        given: the arguments of the float program, and those with the errors of what came before;
            None where there are none such, so that nothing is ``found``.

        Raises ``ArgumentError`` or ``ArgumentTypeError`` for arguments that it was not made for.
        """
        with torch.no_grad():
            floats = _Floats(self.plan.walk(modules[0], given[0]), self._needed)
            for value, tensor in match(self.plan.program.arguments, given[0]):
                floats.put(value.name, tensor)
            walks = [
                _Stepped(self.converted.walk(modules[1], arguments), is_local=is_local)
                for is_local, arguments in ((True, given[0]), (False, given[1]))
                if arguments is not None and (self.is_taught or not is_local)
            ]
            while step := self._next(walks):
                self._moment(step, walks, floats, see)
            return floats.finish()

    @staticmethod
    def _next(walks: "list[_Stepped]") -> Step | None:
        steps = [walk.advance() for walk in walks]
        return steps[0] if steps else None

    def _moment(self, step: Step, walks: "list[_Stepped]", floats: "_Floats", see: See) -> None:
        of = self._brought.get(step.name)
        if of is None:
            return
        expected = of.part_of(floats.at(of.name))
        shown: dict[bool, Any] = {}
        is_drawn = draws(step)
        for walk in walks:
            if is_drawn:
                walk.value = expected
            if not of.is_conversion:
                shown[walk.is_local] = self._in_float(of, walk.value)
        see(Moment(of, expected, shown.get(True), shown.get(False), floats.values))
        for walk in walks:
            if walk.is_local:
                walk.value = self._replacement(of, expected, walk.value)
        floats.drop(self._last.get(step.name, ()))

    def _in_float(self, of: Brought, value: Any) -> Any:
        if not of.as_codes:
            return value
        return ops.dequantize(*operand(value, self.edges[of.name]), torch.float32)

    def _replacement(self, of: Brought, expected: Any, value: Any) -> Any:
        """What stands for the float value in the converted program."""
        if of.is_conversion and of.step.name != of.name:
            return value  # codes of the float value already
        if of.as_codes:
            return codes_of(expected, self.edges[of.name])
        return expected if of.step.name == of.name else expected.to(value.dtype)


def codes_of(x: Tensor, edge: Edge) -> Tensor:
    """The codes of floats: ``clamp(rne(x / scale) + zero_point, qmin, qmax)``."""
    values = operand(x.to(torch.float32), edge)
    return ops.quantize(*values, edge.qmin, edge.qmax, edge.storage)


def _schedule(
    found: Iterable[Brought], wanted: Mapping[str, Iterable[str]]
) -> tuple[set[str], dict[str, tuple[str, ...]]]:
    """The float values that are kept for a while, and after which converted step they go."""
    last: dict[str, str] = {}
    for each in found:
        also = () if each.is_conversion else wanted.get(each.name, ())
        last.update(dict.fromkeys((each.name, *also), each.step.name))
    going: dict[str, list[str]] = defaultdict(list)
    for name, step in last.items():
        going[step].append(name)
    return set(last), {step: tuple(names) for step, names in going.items()}


class _Floats:
    """The float program on its way, and those of its values that are still needed."""

    def __init__(self, walk: Walk, needed: set[str]) -> None:
        self._walk, self._needed = walk, needed
        self._put: Any = None
        self.values: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> None:
        """Keep a value, if it is needed."""
        if name in self._needed:
            self.values[name] = value

    def at(self, name: str) -> Any:
        """A value; the program is walked until it is there."""
        while name not in self.values:
            step, self._put = self._walk.send(self._put)
            self.put(step.name, self._put)
        return self.values[name]

    def drop(self, names: Iterable[str]) -> None:
        """Forget values."""
        for name in names:
            self.values.pop(name, None)

    def finish(self) -> Any:
        """Walk to the end; what the program returns."""
        try:
            while True:
                _, self._put = self._walk.send(self._put)
        except StopIteration as end:
            return end.value


class _Stepped:
    """A converted program on its way; ``value`` is what the next step finds in its place."""

    def __init__(self, walk: Walk, *, is_local: bool) -> None:
        self._walk, self.is_local = walk, is_local
        self.value: Any = None

    def advance(self) -> Step | None:
        """Run the next step; None at the end."""
        try:
            step, self.value = self._walk.send(self.value)
        except StopIteration:
            return None
        return step
