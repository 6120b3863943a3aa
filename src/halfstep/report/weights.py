"""The parameters of a program in float and as integers, and what is computed from them alone."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.graph.operators import resolve, torch_value
from halfstep.graph.program import TorchName
from halfstep.graph.run import find
from halfstep.graph.trees import Value, mapped
from halfstep.numerics import ops
from halfstep.report.layout import Layout, Operator
from halfstep.spec import QSpec
from halfstep.tensor import QTensor, quantize


class Weights:
    """What the operators of a program read that never changes, at three stages.

    "float", "clipped" to what the integers reach, and the "integers" themselves, as float32.
    """

    def __init__(self, layout: Layout, modules: tuple[nn.Module, nn.Module]) -> None:
        self._layout, self._modules = layout, modules
        self._clipped: dict[str, bool] = {}

    def pair(self, root: str) -> tuple[Tensor, Tensor]:
        """A parameter or constant, in float and as it is in the quantized model."""
        program, converted = self._layout.program, self._layout.part.program
        if root in program.constants:
            return program.constants[root], converted.constants.get(root, program.constants[root])
        path = program.parameters[root]
        return find(self._modules[0], path), find(self._modules[1], path)

    def integers(self, operator: Operator) -> list[tuple[str, Tensor, QTensor]]:
        """The names of an operator's roots that are integers, with both of their forms."""
        roots = [root for name in operator.reads for root in self._layout.roots(name)]
        found = [(root, *self.pair(root)) for root in dict.fromkeys(roots)]
        kept = [(root, w, q) for root, w, q in found if isinstance(q, QTensor)]
        return kept + [
            (name, self.value(name, "float"), self._quantized(name, spec))
            for name, spec in self._computed.items()
            if name in operator.reads
        ]

    def are_integers(self, operator: Operator) -> bool:
        """Whether any weight of an operator is integers."""
        return bool(self.integers(operator))

    def are_clipped(self, operator: Operator) -> bool:
        """Whether any weight of an operator lies beyond what its integers reach."""
        if operator.name not in self._clipped:
            found = self.integers(operator)
            self._clipped[operator.name] = any(not inside(w, q).all() for _, w, q in found)
        return self._clipped[operator.name]

    def value(self, name: str, stage: str) -> Any:
        """A value that never changes, at a stage."""
        maker = self._layout.flow.maker.get(name)
        if maker is None:
            return _at(*self.pair(name), stage)

        def leaf(argument: Any) -> Any:
            if isinstance(argument, Value):
                return self.value(argument.name, stage)
            return torch_value(argument) if isinstance(argument, TorchName) else argument

        options = {key: mapped(value, leaf) for key, value in maker.kwargs}
        made = resolve(maker.op)(*mapped(maker.args, leaf), **options)
        if name not in self._computed or stage == "float":
            return made
        return _at(made, quantize(made, self._computed[name]), stage)

    def _quantized(self, name: str, spec: QSpec) -> QTensor:
        return quantize(self.value(name, "float"), spec)

    @cached_property
    def _computed(self) -> Mapping[str, QSpec]:
        """The weights that become integers once they have been computed."""
        steps = self._layout.converted.steps
        made = [step.args for step in steps if step.op == "int.quantize_weight"]
        return {value.name: spec for value, spec in made}


def inside(w: Tensor, q: QTensor) -> Tensor:
    """Where the floats have a code that needs no clamping."""
    return ops.fake_quantize_with_mask(
        w.to(torch.float32), q.scale, q.zero_point, q.spec.qmin, q.spec.qmax
    )[1]


def _at(w: Tensor, made: Tensor, stage: str) -> Tensor:
    if stage != "float" and isinstance(made, QTensor):
        floats = made.floats(torch.float32)
        return floats if stage == "integers" else torch.where(inside(w, made), w.float(), floats)
    kept = made if stage == "integers" else w
    kept = kept.floats() if isinstance(kept, QTensor) else kept
    return kept.to(torch.float32) if kept.is_floating_point() else kept
