"""Which steps run in integers, and which values are observed for it: decided before any data.

A contraction runs in integers where the recipe says so. What is light (sums, concatenations,
pooling, activations) and what only moves values follows: in integers where its operands are codes
anyway and somebody reads its result as codes; in float otherwise.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from halfstep.graph.candidates import Candidate, candidate
from halfstep.graph.channel_clamp import CLAMP_CHANNELS
from halfstep.graph.flow import Flow
from halfstep.graph.kinds import Family, operands
from halfstep.graph.matching import Matcher
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Decision, Execution
from halfstep.graph.run import find
from halfstep.spec import QSpec


@dataclass(frozen=True)
class Placement:
    """What is decided of a program.

    decisions: one for each step, by its name.
    observe: the values that become edges, with their formats.
    observers: how the range of such a value is found, where the recipe says it.
    shared: values that have the scale of another, by the name of that one.
    weights: the parameters and constants that are kept as integers, with their formats.
    weight_observers: how the range of such a weight is found, where the recipe says it.
    """

    decisions: dict[str, Decision] = field(default_factory=dict)
    observe: dict[str, QSpec] = field(default_factory=dict)
    observers: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    weights: dict[str, QSpec] = field(default_factory=dict)
    weight_observers: dict[str, Any] = field(default_factory=dict)


def place(program: Program, module: nn.Module, matcher: Matcher, *, path: str = "") -> Placement:
    """Decide how each step of a normalized program of the module at ``path`` runs.

    Raises ``ArgumentTypeError`` for a rule that asks for what no integer form has.
    """
    flow = Flow(program)
    tensors: dict[str, Tensor] = {
        **program.constants,
        **{name: find(module, where) for name, where in program.parameters.items()},
    }
    found = {
        step.name: candidate(step, matcher.rule_for(step, path), flow, tensors)
        for step in program.steps
    }
    _drop_unfed(flow, found)
    placement = Placement({name: each.decision for name, each in found.items()})
    _put_weights(flow, found, placement)
    _put_edges(flow, found, placement)
    return placement


def _is_integer(each: Candidate | None) -> bool:
    return each is not None and each.decision.execution is Execution.INTEGER


def _drop_unfed(flow: Flow, found: dict[str, Candidate]) -> None:
    """Leave light steps in float where their operands or their readers are, until none is left."""
    changed = True
    while changed:
        changed = False
        for step in flow.program.steps:
            each = found[step.name]
            if not _is_integer(each) or each.family is Family.CONTRACTION:
                continue
            reason = _reason_against(step, flow, found)
            if reason:
                found[step.name] = each.left_in_float(reason)
                changed = True


def _reason_against(step: Step, flow: Flow, found: dict[str, Candidate]) -> str:
    """Why a light step would not pay in integers."""
    kind = found[step.name].kind
    given = list(operands(step, kind)) if kind else []
    for value in given:
        if value.name in flow.static:
            return f"its operand {value.name} is a parameter"
        maker = flow.maker.get(value.name)
        if not _is_integer(found.get(value.name) if maker else None) and not _is_read_by_heavy(
            value.name, flow, found
        ):
            return f"its operand {value.name} is computed in float"
    if not any(_takes(reader, step.name, found) for reader in flow.readers[step.name]):
        return "nothing reads its result as integers"
    return ""


def _is_read_by_heavy(name: str, flow: Flow, found: dict[str, Candidate]) -> bool:
    """Whether a contraction takes the value as codes, so that the codes exist."""
    return any(
        found[reader.name].family is Family.CONTRACTION and _takes(reader, name, found)
        for reader in flow.readers[name]
    )


def _takes(reader: Step, name: str, found: dict[str, Candidate]) -> bool:
    """Whether a step takes a value as codes."""
    each = found[reader.name]
    if not _is_integer(each) or each.kind is None:
        return False
    return any(value.name == name for value in operands(reader, each.kind))


def _put_weights(flow: Flow, found: dict[str, Candidate], placement: Placement) -> None:
    for each in found.values():
        for name, spec in each.weights:
            if name not in placement.weights:
                placement.weights[name] = spec
                placement.weight_observers[name] = each.weight_observer


def _put_edges(flow: Flow, found: dict[str, Candidate], placement: Placement) -> None:
    """Every value that a step takes as codes gets a format; those that only move share one."""
    for step in flow.program.steps:
        each = found[step.name]
        if not _is_integer(each) or each.kind is None:
            continue
        if each.family is Family.MOVE:
            placement.shared[step.name] = step.args[0].name
        for value in operands(step, each.kind):
            if value.name not in flow.static:
                _put_edge(value.name, each, found, placement)
    for step in flow.program.steps:
        each = found[step.name]
        if not _is_integer(each) or each.kind is None:
            continue
        if each.kind.name == "cat" or step.op == CLAMP_CHANNELS:
            for part in _parts_for(step, flow, found):
                placement.shared[part] = step.name


def _put_edge(name: str, reader: Candidate, found: dict[str, Candidate], to: Placement) -> None:
    """The format of a value: what its maker returns if a rule says it, else what a reader takes."""
    if name in to.shared or name in to.observe:
        return
    maker = found.get(name)
    owner = maker if maker is not None and _is_integer(maker) and maker.output else reader
    spec = owner.output if owner is maker else reader.input
    if spec is not None:
        to.observe[name] = spec
        to.observers[name] = owner.observer


def _parts_for(step: Step, flow: Flow, found: dict[str, Candidate]) -> Iterator[str]:
    """Parts of a concatenation that nobody else reads: they take the scale of the whole.

    So does what is clamped channel by channel: beyond the widest bound it need not be known.
    """
    parts = step.args[0] if isinstance(step.args[0], tuple) else step.args[:1]
    for value in parts:
        made = found.get(value.name)
        is_own = flow.only_reader(value.name) is step and parts.count(value) == 1
        if is_own and _is_integer(made) and made is not None and made.family is not Family.MOVE:
            yield value.name
