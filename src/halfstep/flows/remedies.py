"""Remedies before anything is decided: other weights for the same float function.

They change the programs and the copy of the model that holds the folded weights; both compute what
they did, up to rounding. What changes the quantized model alone is in ``flows.corrections``.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from halfstep.algorithms.cross_layer_equalization import equalized
from halfstep.algorithms.smooth_quant import sites, smoothed
from halfstep.flows.data import Data
from halfstep.flows.folding import readers_of
from halfstep.flows.parts import Part, joined
from halfstep.flows.watch import observe
from halfstep.graph.place import Placement
from halfstep.graph.product import put
from halfstep.graph.revision import Revision
from halfstep.graph.run import find
from halfstep.spec import PerChannel, QSpec, int8
from halfstep.spec.recipe import Recipe
from halfstep.spec.remedies import Equalize, Remedy, Smooth

_CHANNELS = QSpec(int8, PerChannel(-1), symmetric=True)


def remedied(
    work: nn.Module, parts: Sequence[Part], recipe: Recipe, data: Data | None
) -> tuple[list[Part], list[str]]:
    """The parts by the remedies of a recipe, and what is to be said; ``work`` gets new weights."""
    found, notes = list(parts), []
    for remedy in recipe.remedies:
        if isinstance(remedy, Equalize):
            revisions = [_equalized(work, part, found, remedy.limit) for part in found]
        elif isinstance(remedy, Smooth) and data is not None:
            revisions = _smoothed(work, found, remedy, data)
        else:
            continue
        notes += _notes(remedy, found, revisions)
        found = [_put(work, *pair) for pair in zip(found, revisions, strict=True)]
    return found, notes


def _equalized(work: nn.Module, part: Part, parts: Sequence[Part], limit: float | None) -> Revision:
    if part.fixed:
        return Revision(part.program)
    fixed = shared_names(work, part, parts)
    return equalized(part.program, work.get_submodule(part.path), limit=limit, fixed=fixed)


def _smoothed(work: nn.Module, parts: Sequence[Part], remedy: Smooth, data: Data) -> list[Revision]:
    observing = [_observing(work, part, parts, remedy) for part in parts]
    maxima = _maxima(work, parts, observing, data)
    return [
        smoothed(
            part.program,
            work.get_submodule(part.path),
            known,
            remedy.alpha,
            elsewhere=remedy.elsewhere,
            fixed=shared_names(work, part, parts),
        )
        for part, known in zip(parts, maxima, strict=True)
    ]


def _maxima(
    work: nn.Module, parts: Sequence[Part], observing: Sequence[Placement], data: Data
) -> list[dict[str, Tensor]]:
    """The largest magnitudes of the channels of each value that may be smoothed."""
    looked_at = [replace(part, placement=p) for part, p in zip(parts, observing, strict=True)]
    if not any(part.placement.observe for part in looked_at):
        return [{} for _ in parts]
    model = copy.deepcopy(work, {id(value): value for value in work.parameters()})
    watches = observe(model, looked_at)
    data.run_ahead(model)
    found: dict[int, dict[str, Tensor]] = {id(watch.part): {} for watch in watches}
    for watch in watches:
        for name, observer in watch.observers.items():
            if observer.has_range:
                ends = torch.stack(observer.range()).abs().amax(0)
                found[id(watch.part)][name] = ends.flatten()
    return [found[id(part)] for part in looked_at]


def _observing(work: nn.Module, part: Part, parts: Sequence[Part], remedy: Smooth) -> Placement:
    if part.fixed:
        return Placement()
    tensors = {name: find(work, part.at(name)) for name in part.program.parameters}
    fixed = shared_names(work, part, parts)
    known = {**part.program.constants, **tensors}
    found = sites(part.program, known, fixed, elsewhere=remedy.elsewhere is not None)
    return Placement(observe={site.maker.name: _CHANNELS for site in found})


def shared_names(work: nn.Module, part: Part, parts: Sequence[Part]) -> set[str]:
    """The parameters of a part that more than one step of the model reads."""
    reads = readers_of(work, parts)
    return {name for name in part.program.parameters if reads[id(find(work, part.at(name)))] > 1}


def _put(work: nn.Module, part: Part, found: Revision) -> Part:
    """The part as revised, its weights put into the model."""
    for name, weight in found.weights.items():
        put(work, part.at(name), weight)
    return replace(part, program=found.program, done=both(part.done, found.done))


def both(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """What was done to layers, first and then.

    >>> both({"conv": "equalized"}, {"conv": "bias corrected"})
    {'conv': 'equalized, bias corrected'}
    """
    found = dict(before)
    for name, text in after.items():
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def _notes(remedy: Remedy, parts: Sequence[Part], found: Sequence[Revision]) -> list[str]:
    """That a remedy found nothing to do, and where it could not do anything."""
    name = type(remedy).__name__
    notes = [
        f"{name} leaves {joined(part.path, step.source) or step.name} as it is: {reason}"
        for part, each in zip(parts, found, strict=True)
        for step in part.program.steps
        if (reason := each.refused.get(step.name))
    ]
    if not any(each.done for each in found):
        notes.append(f"{name} found nothing to do{_HINTS[type(remedy)]}")
    return notes


_HINTS: dict[type[Remedy], str] = {
    Equalize: ": no two layers follow one another with only activations between them",
    Smooth: ": no linear layer reads a LayerNorm or RMSNorm",
}
