"""What the recipe asks of one step by itself, before its neighbours are looked at."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentTypeError, HalfstepError
from halfstep.graph.flow import Flow
from halfstep.graph.kinds import Family, Kind, kind_of
from halfstep.graph.program import Step
from halfstep.graph.quantized import Decision, Execution
from halfstep.graph.scales import unserved
from halfstep.graph.trees import Value, leaves
from halfstep.observe import Observer
from halfstep.spec import PerChannel, PerTensor, QDType, QSpec, Rule


@dataclass(frozen=True)
class Candidate:
    """A step, its integer form, and what its rule makes of it.

    weights: the tensors that become integers for it, by name.
    input, output: the formats of the codes that it takes and returns.
    observer, weight_observer: how ranges of its values and of its weights are found.
    """

    decision: Decision
    kind: Kind | None = None
    weights: tuple[tuple[str, QSpec], ...] = ()
    input: QSpec | None = None
    output: QSpec | None = None
    observer: Any = None
    weight_observer: Any = None

    @property
    def family(self) -> Family | None:
        """What the step does to codes."""
        return None if self.kind is None else self.kind.family

    def left_in_float(self, reason: str) -> "Candidate":
        """The same step, not in integers."""
        return dataclasses.replace(self, decision=Decision(Execution.FLOAT, reason), weights=())


def candidate(
    step: Step, rule: Rule | None, flow: Flow, tensors: Mapping[str, Tensor]
) -> Candidate:
    """What a rule makes of a step."""
    kind = kind_of(step)
    reason = _reason_for_float(step, kind, rule, flow)
    if reason or kind is None or rule is None:
        return Candidate(Decision(Execution.FLOAT, reason), kind)
    wanted = Candidate(
        Decision(Execution.INTEGER),
        kind,
        input=_spec(rule, "input", step),
        output=_spec(rule, "output", step),
        observer=_observer(rule),
        weight_observer=rule.weight if isinstance(rule.weight, Observer) else rule.weight_observer,
    )
    if kind.family is Family.CONTRACTION:
        return _contraction(step, wanted, _spec(rule, "weight", step), flow, tensors)
    if kind.weight is not None:
        return _with_weight(step, wanted, _spec(rule, "weight", step), tensors)
    return _light(wanted)


def _reason_for_float(step: Step, kind: Kind | None, rule: Rule | None, flow: Flow) -> str:
    if step.name in flow.static:
        return "it depends on parameters alone and runs once"
    if kind is None:
        return f"{step.op.split('.')[1]} has no integer form"
    if rule is None:
        return "no rule matches it"
    return "the recipe keeps it in float" if rule.keep_float else ""


def _light(wanted: Candidate) -> Candidate:
    spec = wanted.input or wanted.output
    if spec is None or spec.granularity != PerTensor():
        return wanted.left_in_float("its rule gives no format with one scale for its values")
    return dataclasses.replace(wanted, input=spec, output=wanted.output or spec)


def _contraction(
    step: Step, wanted: Candidate, weight: QSpec | None, flow: Flow, tensors: Mapping[str, Tensor]
) -> Candidate:
    """A linear layer, a convolution or a product of matrices."""
    kind, spec = wanted.kind, wanted.input
    if kind is None or kind.weight is None:
        return _product(step, wanted, weight, flow, tensors)
    value = step.args[kind.weight]
    if value.name not in flow.static:
        return wanted.left_in_float("its weight is computed from the input")
    if weight is None:
        return wanted.left_in_float("its rule gives no format for the weight")
    own, misfit = _weights(value, weight, flow, tensors)
    reason = misfit or unserved(step, kind, weight, spec)
    if reason:
        return wanted.left_in_float(reason)
    return dataclasses.replace(wanted, decision=_decision(spec, weight), weights=own)


def _product(
    step: Step, wanted: Candidate, weight: QSpec | None, flow: Flow, tensors: Mapping[str, Tensor]
) -> Candidate:
    """A matmul: of two activations, or with a parameter as its second operand."""
    a, b = step.args[0].name, step.args[1].name
    if a in flow.static:
        return wanted.left_in_float("its first operand is a parameter")
    if b not in flow.static:
        return _light(wanted)
    root = flow.turned(b) or b
    shape = tensors[root].shape if root in tensors else ()
    if weight is None or len(shape) != 2 or weight.granularity != PerChannel(0):
        return wanted.left_in_float("its second operand is a parameter that is no plain matrix")
    spec = weight if root != b else weight.with_granularity(PerChannel(1))
    decision = _decision(wanted.input, spec)
    return dataclasses.replace(wanted, decision=decision, weights=((root, spec),))


def _decision(spec: QSpec | None, weight: QSpec) -> Decision:
    """How a step with a weight runs, from the format of what it is given."""
    if spec is None:
        return Decision(Execution.WEIGHT_ONLY, weight=weight)
    if spec.granularity == PerTensor():
        return Decision(Execution.INTEGER, weight=weight)
    return Decision(Execution.DYNAMIC, weight=weight, input=spec)


def _weights(
    value: Value, spec: QSpec, flow: Flow, tensors: Mapping[str, Tensor]
) -> tuple[tuple[tuple[str, QSpec], ...], str]:
    """The tensors behind a weight that become integers, or the reason why none can.

    A weight that is computed from parameters is quantized when it has been computed.
    """
    root = flow.weight_root(value.name)
    if root is None:
        return (), ""
    return ((root, spec),), _misfit(tensors[root], spec)


def _misfit(weight: Tensor, spec: QSpec) -> str:
    """Why a weight cannot have a format."""
    try:
        spec.normalized(weight.ndim).granularity.scale_shape(tuple(weight.shape))
    except HalfstepError as error:
        return f"its weight does not fit the format: {error}"
    return ""


def _with_weight(
    step: Step, wanted: Candidate, weight: QSpec | None, tensors: Mapping[str, Tensor]
) -> Candidate:
    """An embedding or a recurrent layer."""
    kind = wanted.kind
    if kind is None or kind.weight is None or weight is None:
        return wanted.left_in_float("its rule gives no format for the weight")
    names = [v.name for v in leaves(step.args[kind.weight]) if isinstance(v, Value)]
    if not all(name in tensors for name in names):
        return wanted.left_in_float("its weight is computed")
    matrices = [name for name in names if tensors[name].ndim == 2]
    own = tuple((name, weight) for name in matrices)
    misfit = next(filter(None, (_misfit(tensors[name], weight) for name in matrices)), "")
    reason = misfit or unserved(step, kind, weight, wanted.input)
    if reason:
        return wanted.left_in_float(reason)
    if kind.family is Family.LOOKUP or wanted.input is None:
        decision = Decision(Execution.WEIGHT_ONLY, weight=weight)
    elif wanted.input.granularity == PerTensor():
        return wanted.left_in_float("its steps need PerToken() scales for their input")
    else:
        decision = Decision(Execution.DYNAMIC, weight=weight, input=wanted.input)
    return dataclasses.replace(wanted, decision=decision, weights=own)


def _spec(rule: Rule, slot: str, step: Step) -> QSpec | None:
    """The format that a rule gives to a slot: its own, or that of its observer."""
    given = getattr(rule, slot)
    if given is None or isinstance(given, QSpec):
        return given
    if isinstance(given, QDType | torch.dtype):
        return QSpec(given)
    if isinstance(given, Observer):
        return given.spec
    raise ArgumentTypeError(
        f"the rule for {rule.match!r} makes the {slot} of {step.source or step.name} {given!r}: "
        "a model that runs in integers needs a QSpec, an integer dtype or an observer"
    )


def _observer(rule: Rule) -> Any:
    """How ranges are found: an observer to copy, or a maker of observers."""
    for given in (rule.output, rule.input):
        if isinstance(given, Observer):
            return given
    return rule.observer
