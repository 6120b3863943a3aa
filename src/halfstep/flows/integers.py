"""The weights of a quantized model: integers in the place of its floats."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from halfstep.errors import ArgumentTypeError, HalfstepError
from halfstep.flows.parts import Part
from halfstep.flows.quantizers import observed_qparams
from halfstep.graph.place import Placement
from halfstep.graph.product import put
from halfstep.graph.quantized import Decision, Execution
from halfstep.graph.run import find
from halfstep.spec import QSpec
from halfstep.tensor import QTensor, quantize


@dataclass
class Integers:
    """The quantized weights of a model by path, and the parts that read them.

    notes: what is to be said of their channels.
    """

    parts: list[Part] = field(default_factory=list)
    tensors: dict[str, QTensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _made: dict[int, QTensor] = field(default_factory=dict)

    def take(self, model: nn.Module, part: Part) -> None:
        """Quantize what one part reads as weights; nothing is put anywhere yet.

        A tensor that several layers share becomes integers once, for all of them; a step that asks
        for another format of it is left in float.

        Raises ``NonFiniteError`` that names the parameter.
        """
        constants = dict(part.program.constants)
        for name, spec in part.placement.weights.items():
            observer = part.placement.weight_observers.get(name)
            if name in constants:
                constants[name] = self._quantized(constants[name], spec, name, observer)
                continue
            path = part.at(name)
            before = find(model, path)
            if id(before) not in self._made:
                self._made[id(before)] = self._quantized(before, spec, path, observer)
            self.tensors[path] = self._made[id(before)]
        program = replace(part.program, constants=constants)
        self.parts.append(replace(part, program=program))

    def placement(self, model: nn.Module, part: Part) -> Placement:
        """A part's placement with all weights that are integers in the end, whoever asked."""
        constants = part.program.constants.items()
        found = {name: one.spec for name, one in constants if isinstance(one, QTensor)}
        for name in part.program.parameters:
            made = self._made.get(id(find(model, part.at(name))))
            if made is not None:
                found[name] = made.spec
        return replace(part.placement, weights=found, decisions=_decisions(part, found, model))

    def put_in(self, model: nn.Module) -> None:
        """Put the integers in the place of the floats, for all that share them."""
        for path, made in self.tensors.items():
            if not isinstance(find(model, path), QTensor):
                put(model, path, made)

    def _quantized(self, weight: Tensor, spec: QSpec, name: str, observer: Any) -> QTensor:
        try:
            made = quantized_weight(weight, spec, observer)
        except HalfstepError as error:
            raise type(error)(f"the weight {name}: {error}") from error
        dead = _dead(made)
        if dead:
            shown = ", ".join(map(str, dead[:8])) + ", ..." * (len(dead) > 8)
            what = f"all zero in {len(dead)} of its {made.scale.numel()} ranges"
            self.notes.append(f"{name} is {what}, whose scale is 1: {shown}")
        return made


def integers_of(model: nn.Module, parts: Iterable[Part]) -> Integers:
    """The weights of a model that its parts keep as integers. Raises as ``Integers.take``."""
    found = Integers()
    for part in parts:
        found.take(model, part)
    found.parts = [replace(part, placement=found.placement(model, part)) for part in found.parts]
    return found


def quantized_weight(weight: Tensor, spec: QSpec, observer: Any = None) -> QTensor:
    """A weight as integers, on the range of all its values or on that which an observer finds.

    Raises ``NonFiniteError``, and ``ArgumentTypeError`` for what makes no observer.
    """
    if observer is None:
        return quantize(weight.detach(), spec)
    spec = spec.normalized(weight.ndim)
    scale, zero_point = observed_qparams(weight.detach(), spec, observer)
    return quantize(weight.detach(), spec, scale=scale, zero_point=zero_point)


def _dead(made: QTensor) -> list[int]:
    """The positions of scales behind which all values are zero."""
    scale = made.scale
    if not bool((scale == 1).any()):
        return []
    sums = made.spec.granularity.scale_shape(tuple(made.shape))
    values = made.dequantize().abs()
    for axis, (size, count) in enumerate(zip(made.shape, sums, strict=True)):
        if size and count != size:
            values = values.unflatten(axis, (count, size // count)).amax(axis + 1)
    dead = (scale.reshape(values.shape) == 1) & (values == 0)
    positions: list[int] = dead.flatten().nonzero().flatten().tolist()
    return positions


def _decisions(part: Part, found: Mapping[str, QSpec], model: nn.Module) -> dict[str, Decision]:
    """The decisions; a step whose weight another layer keeps in another format is left in float."""
    decided = dict(part.placement.decisions)
    for step in part.program.steps:
        wanted = decided[step.name].weight
        for name in {value.name for value in step.reads()} & found.keys():
            spec = found[name]
            if wanted is not None and wanted.normalized(_ndim(part, name, model)) != spec:
                why = f"another layer keeps its weight {name} as {spec}"
                decided[step.name] = Decision(Execution.FLOAT, why)
    return decided


def _ndim(part: Part, name: str, model: nn.Module) -> int:
    constant = part.program.constants.get(name)
    return (find(model, part.at(name)) if constant is None else constant).ndim


def guard_loading(model: nn.Module) -> None:
    """Let every module that holds integers refuse floats for them when a state is loaded."""
    for module in model.modules():
        if any(isinstance(value, QTensor) for value in module._parameters.values()):
            module.register_load_state_dict_pre_hook(refuse_floats)


def refuse_floats(module: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Raise ``ArgumentTypeError`` for a float tensor where the module holds integers."""
    for name, own in module._parameters.items():
        given = state.get(prefix + name)
        if (
            isinstance(own, QTensor)
            and isinstance(given, Tensor)
            and not isinstance(given, QTensor)
        ):
            raise ArgumentTypeError(
                f"{prefix}{name} of this state is {given.dtype}, and the model is quantized: it "
                f"holds {own.spec} there. Load the state into the float model and quantize that, "
                "or load the state_dict of a model quantized alike"
            )


def bytes_of(tensors: Mapping[str, Tensor] | Sequence[Tensor]) -> int:
    """The bytes of all tensors, shared ones counted once, integers as they are stored."""
    values = tensors.values() if isinstance(tensors, Mapping) else tensors
    return sum(_bytes(value) for value in {id(value): value for value in values}.values())


def _bytes(value: Tensor) -> int:
    parts = value.stored() if isinstance(value, QTensor) else (value,)
    return sum(part.nbytes for part in parts)


def state_bytes(model: nn.Module) -> int:
    """The bytes of all parameters and buffers of a model."""
    return bytes_of([*model.parameters(), *model.buffers()])
