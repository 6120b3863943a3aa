"""The rows of a coverage table, from what was decided of the parts of a model."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from halfstep.flows.coverage import FLOAT, FOLDED, PYTHON, Coverage, Row
from halfstep.flows.integers import bytes_of
from halfstep.flows.parts import Part, joined
from halfstep.graph.capture import Region
from halfstep.graph.kinds import kind_of, operands
from halfstep.graph.program import Step
from halfstep.graph.quantized import Decision, Execution
from halfstep.graph.run import find
from halfstep.spec import QSpec

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
    python = [Row(r.path, PYTHON, FLOAT, r.reason) for r in regions if not r.programs]
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
        reason = part.notes.get(step.name) or decision.reason
        why = "; ".join(filter(None, [reason, part.done.get(step.name)]))
        value = joined(part.path, step.name)
        yield Row(
            layer, step.op.split(".")[1], runs(step, decision, part), why, before, after, value
        )


def runs(step: Step, decision: Decision, part: Part) -> str:
    """How a step runs, for people: the width of its activations, and that of other weights."""
    kind = kind_of(step)
    if decision.execution is Execution.FLOAT:
        return FLOAT
    if decision.execution is Execution.INTEGER and part.runs and kind is not None:
        formats = (_format(value.name, part) for value in operands(step, kind))
        bits = next((spec.dtype.bits for spec in formats if spec is not None), 8)
        own = bits if decision.weight is None else decision.weight.dtype.bits
        return f"int{bits}" if own == bits else f"int{bits}, int{own} weights"
    bits = 8 if decision.weight is None else decision.weight.dtype.bits
    if decision.execution is Execution.DYNAMIC and part.runs:
        return f"dynamic int{bits}"
    return f"int{bits} weights"


def _format(name: str, part: Part) -> QSpec | None:
    """The format of a value's codes: its own, or that of the value whose scale it has."""
    while name in part.placement.shared:
        name = part.placement.shared[name]
    return part.placement.observe.get(name)


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
