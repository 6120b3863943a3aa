"""The operators of a program, as one engine runs them: what is one step there is one here."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from halfstep.graph.brought import Brought, brought
from halfstep.graph.edges import Edge
from halfstep.graph.flow import Flow
from halfstep.graph.kinds import Family, Kind, kind_of, operands
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.regions import Region, find_regions
from halfstep.graph.support import Support
from halfstep.graph.trees import Value
from halfstep.spec import Capabilities

# Arithmetic on sizes, and taking tuples apart: no work on tensors.
_NO_WORK = ("operator.", "math.", "torch.", "python.", "aten.sym_")
_FLOAT = Decision(Execution.FLOAT)


@dataclass(frozen=True)
class Operator:
    """One operator and what is fused to it.

    name: the value that it brings. steps: in float, the operator itself first.
    execution: how it truly runs. as_codes: whether it brings codes.
    takes: the values that it takes as codes, or quantizes by row.
    """

    name: str
    steps: tuple[Step, ...]
    kind: Kind | None
    decision: Decision
    execution: Execution = Execution.FLOAT
    as_codes: bool = False
    takes: tuple[str, ...] = ()

    @property
    def main(self) -> Step:
        """The operator itself."""
        return self.steps[0]

    @property
    def is_measured(self) -> bool:
        """Whether it can have an error of its own: moving codes adds none."""
        is_move = self.kind is not None and self.kind.family is Family.MOVE
        return self.execution is not Execution.FLOAT and not is_move

    @property
    def reads(self) -> tuple[str, ...]:
        """The values from outside that it reads, parameters among them."""
        own = {step.name for step in self.steps}
        read = dict.fromkeys(value.name for step in self.steps for value in step.reads())
        return tuple(name for name in read if name not in own)


@dataclass(frozen=True)
class Layout:
    """A captured program, and what became of it.

    program: in float. part: as it was quantized, or the same program where it was not.
    converted: what the engine with these capabilities runs of it.
    """

    program: Program
    part: Quantized
    converted: Program
    capabilities: Capabilities

    @cached_property
    def flow(self) -> Flow:
        """Who makes and who reads the values of the float program."""
        return Flow(self.program)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """All that work on tensors while the program runs, in order."""
        regions = find_regions(Support(self.part, self.capabilities))
        members: dict[str, list[Step]] = defaultdict(list)
        for step in self.program.steps:
            if not step.op.startswith(_NO_WORK) and step.name not in self.flow.static:
                region = regions.get(step.name)
                members[step.name if region is None else region.name].append(step)
        return tuple(
            self._operator(name, tuple(steps), regions.get(name)) for name, steps in members.items()
        )

    @cached_property
    def brought(self) -> dict[str, Brought]:
        """The steps of the converted program that bring a float value, by its name."""
        found = brought(self.converted, {step.name for step in self.program.steps})
        return {each.name: each for each in found if not each.is_conversion}

    def _operator(self, name: str, steps: tuple[Step, ...], region: Region | None) -> Operator:
        decision = self.part.decisions.get(steps[0].name, _FLOAT)
        found, made = Operator(name, steps, kind_of(steps[0]), decision), self.brought.get(name)
        if made is None or found.kind is None:
            return found
        if not (made.as_codes or made.step.op.startswith("int.")):
            return self._by_weight(found)
        if decision.execution is Execution.INTEGER and region is not None:
            given = [*operands(region.main, found.kind), region.residual]
            takes = _moving(self.flow, given)
            return replace(found, execution=decision.execution, as_codes=made.as_codes, takes=takes)
        if decision.execution is Execution.DYNAMIC:
            takes = _moving(self.flow, [steps[0].args[0]])
            return replace(found, execution=decision.execution, takes=takes)
        return self._by_weight(found)

    @staticmethod
    def _by_weight(found: Operator) -> Operator:
        weighs = found.decision.weight is not None
        return replace(found, execution=Execution.WEIGHT_ONLY) if weighs else found

    def edge(self, name: str) -> Edge | None:
        """The format of a value's codes."""
        return self.part.edges.get(name)

    def roots(self, name: str) -> Iterator[str]:
        """The parameters and constants that a value which never changes is made of."""
        if name in self.flow.static:
            maker = self.flow.maker.get(name)
            if maker is None:
                yield name
                return
            for value in maker.reads():
                yield from self.roots(value.name)

    def source(self, name: str) -> str:
        """The value of an operator that a value is taken out of: a part of a tuple, a size."""
        maker = self.flow.maker.get(name)
        while maker is not None and maker.op.startswith(_NO_WORK):
            first = next(maker.reads(), None)
            if first is None:
                break
            name, maker = first.name, self.flow.maker.get(first.name)
        return name


def _moving(flow: Flow, given: list[Value | None]) -> tuple[str, ...]:
    names = (value.name for value in given if value is not None)
    return tuple(dict.fromkeys(name for name in names if name not in flow.static))
