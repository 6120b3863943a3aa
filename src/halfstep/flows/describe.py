"""The rows of a coverage table, from what was decided of the parts of a model."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from halfstep.flows.coverage import FLOAT, FOLDED, Coverage, Row
from halfstep.flows.integers import bytes_of
from halfstep.flows.parts import Part, joined
from halfstep.graph.capture import Region
from halfstep.graph.program import Step
from halfstep.graph.quantized import Decision, Execution
from halfstep.graph.run import find

# Arithmetic on sizes, and taking tuples apart: no work on tensors.
_NO_WORK = ("operator.", "math.", "torch.", "python.", "aten.sym_")


def coverage_of(
    parts: Sequence[Part],
    models: tuple[nn.Module, nn.Module],
    regions: Sequence[Region],
    notes: Sequence[str],
) -> Coverage:
    """Every operator of the parts, and the modules that stay Python.

    models: the float one and the quantized one.
    """
    seen: set[int] = set()
    rows = [row for part in parts for row in _rows(part, models, seen)]
    python = [Row(r.path, "(Python)", FLOAT, r.reason) for r in regions if not r.programs]
    return Coverage((*python, *rows), tuple(notes))


def _rows(part: Part, models: tuple[nn.Module, nn.Module], seen: set[int]) -> Iterator[Row]:
    for name, into in part.gone.items():
        yield Row(joined(part.path, name), "batch_norm", FOLDED, into)
    for step in part.program.steps:
        if step.op.startswith(_NO_WORK):
            continue
        decision = part.placement.decisions.get(step.name, Decision(Execution.FLOAT))
        before, after = _bytes(step, part, models, seen)
        layer = joined(part.path, step.source) or part.path
        why = part.notes.get(step.name) or decision.reason
        value = joined(part.path, step.name)
        yield Row(layer, step.op.split(".")[1], runs(decision, part), why, before, after, value)


def runs(decision: Decision, part: Part) -> str:
    """How a step runs, for people."""
    bits = "int8" if decision.weight is None else f"int{decision.weight.dtype.bits}"
    if decision.execution is Execution.FLOAT:
        return FLOAT
    if decision.execution is Execution.WEIGHT_ONLY or not part.runs:
        return f"{bits} weights"
    return f"dynamic {bits}" if decision.execution is Execution.DYNAMIC else bits


def _bytes(
    step: Step, part: Part, models: tuple[nn.Module, nn.Module], seen: set[int]
) -> tuple[int, int]:
    """The bytes before and after of the parameters that no row before has counted."""
    own: list[tuple[Tensor, Tensor]] = []
    for value in step.reads():
        if value.name not in part.program.parameters:
            continue
        path = part.at(value.name)
        before, after = find(models[0], path), find(models[1], path)
        if id(after) not in seen:
            seen.add(id(after))
            own.append((before, after))
    return bytes_of([one for one, _ in own]), bytes_of([other for _, other in own])
