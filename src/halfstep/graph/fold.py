"""Batch norm becomes part of the layer before it."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from halfstep.graph.in_place import changes, is_functional
from halfstep.graph.liveness import without_unread
from halfstep.graph.names import Names
from halfstep.graph.program import Program, Step
from halfstep.graph.ranks import ranks
from halfstep.graph.run import find
from halfstep.graph.trees import Value, leaves, mapped

_NORM = "aten.batch_norm.default"
_LINEAR = "aten.linear.default"
_TRANSPOSED = {
    "aten.conv_transpose1d.default": 1,
    "aten.conv_transpose2d.input": 2,
    "aten.conv_transpose3d.input": 3,
}
# With the number of dimensions that their positions have.
_LAYERS = {_LINEAR: 0, **{f"aten.conv{n}d.default": n for n in (1, 2, 3)}, **_TRANSPOSED}
_GROUPS_OF_TRANSPOSED = 6  # its place among the arguments


@dataclass(frozen=True, eq=False)
class Folded:
    """A program with fewer batch norms, and the weights that it needs.

    weights: what the parameters of the program have to be, by the name of their value.
    layers: the step that does the work of a batch norm now, by the name of that norm's step.
    reasons: why a batch norm stays, by the name of its step.
    """

    program: Program
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


class Norm(NamedTuple):
    """What a batch norm does: (x - mean) / sqrt(var + eps) * weight + bias; shapes (C,)."""

    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor
    var: Tensor
    eps: float

    def factor(self) -> Tensor:
        """weight / sqrt(var + eps), in float64."""
        inverse = (_wide(self.var) + self.eps).rsqrt()
        return inverse if self.weight is None else _wide(self.weight) * inverse


def fold(program: Program, module: nn.Module, *, shared: Collection[str] = ()) -> Folded:
    """The program whose batch norms are part of the convolutions and linear layers before them.

        weight' = weight * gamma / sqrt(var + eps)
        bias' = (bias - mean) * gamma / sqrt(var + eps) + beta

    in float64, rounded once to the type of the weight. ``program`` is functional and normalized;
    the new biases are constants of it. ``shared`` are paths of parameters that other programs of
    the model read: their layers stay as they are.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.fold import fold
    >>> from halfstep.graph.normalize import normalized
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)).eval()
    >>> folded = fold(normalized(export(model, (torch.ones(2, 1, 4, 4),))), model)
    >>> print(folded.program)
    program(input):
      0.weight = parameter 0.weight
      0.bias_folded = constant (2,)
      conv2d = aten.conv2d.default(input, 0.weight, 0.bias_folded, (1, 1), (0, 0), (1, 1), 1)  # 0
      return conv2d
    >>> folded.layers, list(folded.weights)
    ({'batch_norm': 'conv2d'}, ['0.weight'])
    """
    norms = [step for step in program.steps if step.op == _NORM]
    why = _reason_for_all(program)
    if why:
        return Folded(program, reasons={step.name: why for step in norms})
    work = _Folding(program, module, shared)
    for step in program.steps:
        work.take(step)
    return work.result()


def _reason_for_all(program: Program) -> str:
    if program.training:
        return "the program is for training, where its statistics follow the batches"
    if not is_functional(program):
        return "the program changes values in place"
    return ""


class _Folding:
    """The steps so far by name, and what is known of the values."""

    def __init__(self, program: Program, module: nn.Module, shared: Collection[str]) -> None:
        self.program = program
        self.module = module
        self.shared = shared
        self.names = Names.of(program)
        self.ranks = ranks(program)
        self.readers = Counter(_reads(program))
        self.changed = {step.args[0].name for step in changes(program)}
        self.constants = dict(program.constants)
        self.steps: dict[str, Step] = {}
        self.same: dict[Value, Value] = {}
        self.weights: dict[str, Tensor] = {}
        self.layers: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def take(self, step: Step) -> None:
        """Append a step, or fold it into one that is there."""
        kwargs = tuple((name, mapped(value, self.current)) for name, value in step.kwargs)
        step = replace(step, args=mapped(step.args, self.current), kwargs=kwargs)
        if step.op == _NORM:
            layer = self.steps.get(step.args[0].name)
            found = self.folded(step, layer)
            if layer is not None and not isinstance(found, str):
                self.rewrite(step, layer, *found)
                return
            self.reasons[step.name] = str(found)
        self.steps[step.name] = step

    def current(self, leaf: Any) -> Any:
        """The value that stands for one."""
        return self.same.get(leaf, leaf) if isinstance(leaf, Value) else leaf

    def tensor(self, value: Value | None) -> Tensor | None:
        """What is known of a value before the program runs."""
        if value is None or value.name in self.changed:
            return None
        if value.name in self.weights:
            return self.weights[value.name]
        path = self.program.parameters.get(value.name)
        return self.constants.get(value.name) if path is None else find(self.module, path).detach()

    def reason(self, step: Step, layer: Step | None) -> str:
        """Why a batch norm is not folded, or nothing."""
        if step.args[5] or step.args[3] is None or step.args[4] is None:
            return "it normalizes by the statistics of each batch"
        if layer is None or layer.op not in _LAYERS:
            found = "an input" if layer is None else f"{layer.op} ({layer.name})"
            return f"it follows {found}, which has no weight to fold it into"
        if self.readers[layer.name] > 1:
            return f"the value of {layer.source or layer.name} is read elsewhere as well"
        if any(self.tensor(value) is None for value in _values(step.args[1:5])):
            return "its own parameters are computed or changed by the model"
        return self.reason_of_weight(layer) or self.reason_of_rank(layer)

    def reason_of_weight(self, layer: Step) -> str:
        """Why the weight or the bias of a layer cannot be replaced, or nothing."""
        name, weight = layer.source or layer.name, layer.args[1]
        if weight.name not in self.program.parameters or weight.name in self.changed:
            return f"the weight of {name} is computed or changed by the model"
        used_again = self.readers[weight.name] > 1
        if used_again or self.program.parameters[weight.name] in self.shared:
            return f"the weight of {name} is used elsewhere as well"
        if any(self.tensor(bias) is None for bias in _values(layer.args[2:3])):
            return f"the bias of {name} is computed or changed by the model"
        return ""

    def reason_of_rank(self, layer: Step) -> str:
        """Why the norm's channels may not be the layer's outputs, or nothing."""
        before, expected = self.ranks.get(layer.args[0].name), _LAYERS[layer.op] + 2
        if before == expected or (before is None and layer.op != _LINEAR):
            return ""
        what = f"{before} dimensions" if before else "an unknown number of dimensions"
        return f"the input of {layer.source or layer.name} has {what}, not {expected}"

    def folded(self, step: Step, layer: Step | None) -> tuple[Tensor, Tensor] | str:
        """The layer's weight and bias with the batch norm in them, or why that is not possible."""
        why = self.reason(step, layer)
        if why or layer is None:
            return why
        weight, *rest = (self.tensor(value) for value in (*layer.args[1:3], *step.args[1:5]))
        bias, gamma, beta, mean, var = rest
        groups = layer.args[_GROUPS_OF_TRANSPOSED] if layer.op in _TRANSPOSED else None
        if weight is None or mean is None or var is None:
            return "its own parameters are computed or changed by the model"
        norm = Norm(gamma, beta, mean, var, step.args[7])
        if len(mean) != weight.shape[0 if groups is None else 1] * (groups or 1):
            return f"it has {len(mean)} channels, and {layer.source or layer.name} other outputs"
        found = fold_weight(weight, norm.factor(), groups), fold_bias(bias, norm).to(weight)
        if not all(each.isfinite().all() for each in found):
            return f"the folded weights would not be finite in {weight.dtype}"
        return found

    def rewrite(self, step: Step, layer: Step, weight: Tensor, bias: Tensor) -> None:
        """Put a batch norm into a layer."""
        name = self.names.fresh(f"{layer.source or layer.name}.bias_folded")
        self.weights[layer.args[1].name] = weight
        self.constants[name] = bias
        args = (*layer.args[:2], Value(name), *layer.args[3:])
        self.steps[layer.name] = replace(layer, args=args)
        self.same[Value(step.name)] = Value(layer.name)
        self.readers[layer.name] = self.readers[step.name]
        self.layers[step.name] = layer.name

    def result(self) -> Folded:
        """The program without what only the batch norms read."""
        program = replace(
            self.program,
            steps=tuple(self.steps.values()),
            outputs=mapped(self.program.outputs, self.current),
            constants=self.constants,
        )
        return Folded(without_unread(program), self.weights, self.layers, self.reasons)


def fold_weight(weight: Tensor, factor: Tensor, groups: int | None = None) -> Tensor:
    """The weight of a layer whose outputs are multiplied by ``factor``, rounded once.

    weight: (O, ...), or for a transposed convolution, given its ``groups``, (I, O / groups, ...);
    factor: (O,) in float64.

    >>> import torch
    >>> from halfstep.graph.fold import fold_weight
    >>> fold_weight(torch.ones(2, 1, 1), torch.tensor([2.0, 3.0]), groups=2).flatten()
    tensor([2., 3.])
    """
    if groups is None:
        shaped = factor.reshape(-1, *[1] * (weight.ndim - 1))
    else:
        inputs = weight.shape[0] // groups
        rows = factor.reshape(groups, -1).repeat_interleave(inputs, 0)
        shaped = rows.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2))
    return (_wide(weight) * shaped).to(weight)


def fold_bias(bias: Tensor | None, norm: Norm) -> Tensor:
    """(bias - mean) * factor + beta, in float64; shape (O,)."""
    shifted = -_wide(norm.mean) if bias is None else _wide(bias) - _wide(norm.mean)
    folded = shifted * norm.factor()
    return folded if norm.bias is None else folded + _wide(norm.bias)


def _wide(x: Tensor) -> Tensor:
    """In float64, on the CPU, since not every device has it."""
    return x.detach().to("cpu", torch.float64)


def _values(args: Any) -> Iterator[Value]:
    return (leaf for leaf in leaves(args) if isinstance(leaf, Value))


def _reads(program: Program) -> Iterator[str]:
    """The names that are read, as often as they are."""
    for step in program.steps:
        yield from (value.name for value in step.reads())
    yield from (value.name for value in _values(program.outputs))
