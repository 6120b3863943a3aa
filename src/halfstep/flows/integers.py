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
from halfstep.spec import PerGroup, QSpec
from halfstep.tensor import QTensor, quantize


@dataclass
class Integers:
    """The quantized weights of a model by path, and the parts that read them.

    biases: those that are not the float model's, by path.
    notes: what is to be said of their channels.
    known: weights that were quantized before, for a model that is quantized in many ways.
    """

    known: dict[Any, QTensor] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    tensors: dict[str, QTensor] = field(default_factory=dict)
    biases: dict[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _made: dict[int, QTensor] = field(default_factory=dict)

    def take(self, model: nn.Module, part: Part) -> None:
        """Quantize what one part reads as weights; nothing is put anywhere yet.

        A tensor that several layers share becomes integers once, for all of them; a step that asks
        for another format of it is left in float.

        Raises ``NonFiniteError`` that names the parameter.
        """
        constants = dict(part.program.constants)
        self.biases |= part.biases
        for name, spec in part.placement.weights.items():
            observer = part.placement.weight_observers.get(name)
            if name in constants:
                made = self._quantized(constants[name], spec, name, observer)
                constants[name] = rescaled(made, part.factors.get(name))
                continue
            path = part.at(name)
            before = find(model, path)
            if id(before) not in self._made:
                made = self._quantized(before, spec, path, observer)
                self._made[id(before)] = rescaled(made, part.factors.get(name))
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

    def of(self, before: Tensor) -> Tensor:
        """What stands in the place of a tensor: integers, or itself."""
        return self._made.get(id(before), before)

    def saved(self) -> int:
        """The bytes by which the integers are smaller than the floats that they stand for."""
        made = self._made.values()
        return sum(one.numel() * one.dtype.itemsize - _bytes(one) for one in made)

    def put_in(self, model: nn.Module) -> None:
        """Put the integers in the place of the floats, for all that share them."""
        for path, made in self.tensors.items():
            if not isinstance(find(model, path), QTensor):
                put(model, path, made)
        for path, bias in self.biases.items():
            put(model, path, bias)

    def _quantized(self, weight: Tensor, spec: QSpec, name: str, observer: Any) -> QTensor:
        key = (id(weight), spec, id(observer))
        if key not in self.known:
            self.known[key] = self._made_of(weight, spec, name, observer)
        return self.known[key]

    def _made_of(self, weight: Tensor, spec: QSpec, name: str, observer: Any) -> QTensor:
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


def integers_of(
    model: nn.Module, parts: Iterable[Part], known: dict[Any, QTensor] | None = None
) -> Integers:
    """The weights of a model that its parts keep as integers. Raises as ``Integers.take``.

    known: takes up each weight in each format, so that none is quantized twice; the model must
        live as long.
    """
    found = Integers({} if known is None else known)
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


def rescaled(weight: QTensor, factors: Tensor | None) -> QTensor:
    """The same integers in other steps: output channels multiplied by factors, (O,).

    >>> import halfstep as hs, torch
    >>> from halfstep.flows.integers import rescaled
    >>> ones = hs.quantize(torch.ones(2, 1), hs.int8, axis=0)
    >>> rescaled(ones, torch.tensor([1.0, 3.0])).floats().round()
    tensor([[1.],
            [3.]])
    """
    if factors is None:
        return weight
    axis = 0 if isinstance(weight.spec.granularity, PerGroup) else weight.axis or 0
    shape = [-1 if place == axis else 1 for place in range(weight.scale.ndim)]
    scale = (weight.scale.double() * factors.reshape(shape)).to(weight.scale)
    return QTensor.from_parts(weight.ints, scale, weight.zero_point, weight.spec, weight.dtype)


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
