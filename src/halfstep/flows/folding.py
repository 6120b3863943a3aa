"""Batch norms folded into the layers before them, in the programs and in the model around them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.flows.parts import Part, joined
from halfstep.graph.fold import Folded, fold
from halfstep.graph.product import put
from halfstep.graph.program import Step
from halfstep.graph.run import find
from halfstep.graph.trees import Value

_NORM = "aten.batch_norm.default"


def folded(model: nn.Module, parts: Sequence[Part]) -> list[Part]:
    """The parts without the batch norms that can go, and ``model`` with the weights for that.

    What is left of such a norm in ``model`` adds the folded bias and nothing more, so that Python
    code that calls both layers, as a method beside forward may, still computes the same.
    """
    reads = readers_of(model, parts)
    found = [_fold(model, part, reads) for part in parts]
    return [_with_folded(model, part, one) for part, one in zip(parts, found, strict=True)]


def readers_of(model: nn.Module, parts: Sequence[Part]) -> Counter[int]:
    """How many steps of all parts read a tensor of the model, by its id."""
    return Counter(id(tensor) for part in parts for tensor in _read(model, part))


def _read(model: nn.Module, part: Part) -> Iterator[Tensor]:
    """The tensors of the model that a part reads, as often as its steps do."""
    for step in part.program.steps:
        yield from (
            one for value in step.reads() if (one := _tensor(model, part, value)) is not None
        )


def _tensor(model: nn.Module, part: Part, value: Any) -> Tensor | None:
    known = isinstance(value, Value) and value.name in part.program.parameters
    return find(model, part.at(value.name)) if known else None


def _fold(model: nn.Module, part: Part, reads: Counter[int]) -> Folded:
    """What folding one part comes to; weights and norms that are used twice stay as they are."""
    if part.fixed:
        return Folded(part.program)
    parameters = part.program.parameters
    shared = {
        path for name, path in parameters.items() if reads[id(find(model, part.at(name)))] > 1
    }
    makers = {step.name: step for step in part.program.steps}
    for step in part.program.steps:
        layer = makers.get(step.args[0].name) if step.op == _NORM else None
        used = [_tensor(model, part, value) for value in step.args[1:5]]
        if layer and any(one is not None and reads[id(one)] > 1 for one in used):
            shared |= {parameters.get(value.name, "") for value in layer.reads()}
    return fold(part.program, model.get_submodule(part.path), shared=shared)


def _with_folded(model: nn.Module, part: Part, found: Folded) -> Part:
    steps = {step.name: step for step in part.program.steps}
    for name, weight in found.weights.items():
        put(model, part.at(name), weight)
    gone: dict[str, str] = {}
    for norm, layer in found.layers.items():
        after = next(step for step in found.program.steps if step.name == layer)
        _neutralize(
            model, part, steps[norm], (steps[layer], found.program.constants[after.args[2].name])
        )
        gone[steps[norm].source or norm] = f"into {joined(part.path, after.source) or layer}"
    return replace(
        part,
        program=found.program,
        notes=found.reasons,
        gone=gone,
        normed=frozenset(found.layers.values()),
    )


def _neutralize(model: nn.Module, part: Part, norm: Step, layer: tuple[Step, Tensor]) -> None:
    """Let the norm's module add what the layer's own bias lacks, and nothing more."""
    before, bias = layer
    own = _tensor(model, part, before.args[2])
    gamma, beta, mean, var = (value.name if value else None for value in norm.args[1:5])
    missing = bias if own is None else bias - own.detach()
    shifts = beta is not None
    wanted = {
        gamma: torch.ones_like(bias),
        beta: missing,
        mean: torch.zeros_like(bias) if shifts else -missing,
        var: torch.full_like(bias, 1 - norm.args[7]),
    }
    for name, tensor in wanted.items():
        if name in part.program.parameters:
            put(model, part.at(name), tensor)
