"""From a float model to a quantized one, step by step; what the verbs are made of."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from torch import nn

from halfstep.errors import NonFiniteError
from halfstep.flows.batches import inference
from halfstep.flows.corrections import asks_for_inputs, corrected_parts
from halfstep.flows.data import MOST_BYTES, Data
from halfstep.flows.describe import coverage_of
from halfstep.flows.folding import folded
from halfstep.flows.integers import Integers, guard_loading, integers_of, state_bytes
from halfstep.flows.leaves import leaf_regions
from halfstep.flows.order import Order
from halfstep.flows.origin import Preparation
from halfstep.flows.parts import Part, drafts_of, normal, placed
from halfstep.flows.remedies import remedied
from halfstep.flows.result import Result
from halfstep.flows.summary import Summary
from halfstep.flows.watch import Watch, observe
from halfstep.graph.capture import Captured, capture, programs_of
from halfstep.graph.edges import Edge
from halfstep.graph.engine import Engine
from halfstep.graph.product import install, put
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import find


@dataclass(frozen=True)
class Calibrated:
    """A part whose edges are known."""

    part: Part
    edges: Mapping[str, Edge] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def program(self) -> Program | Quantized:
        """What runs: as it is where nothing of it can be changed."""
        part, decided = self.part, self.part.placement
        if part.fixed:
            return part.program
        return Quantized(
            part.program,
            self.edges,
            decided.decisions,
            weights=decided.weights,
            shapes=self.shapes,
            dtypes=self.dtypes,
        )


def traced(model: nn.Module, order: Order, data: Data | None) -> Preparation:
    """The model as programs, captured on the first batch, and what the recipe makes of them.

    A model that is a program already needs no data.

    Raises ``ArgumentError`` for a rule that matches nothing, ``NonFiniteError`` that names a
    weight, and what the model raises.
    """
    original = _original(model, order)
    captured = _captured(original, data) if data else capture(original, run=lambda whole: None)
    work = sharing(original)
    drafts = folded(work, drafts_of(work, captured))
    drafts, notes = remedied(work, drafts, order.recipe, data)
    return Preparation(
        order=order,
        original=original,
        work=work,
        regions=captured.regions,
        parts=_finite(work, placed(work, drafts, order.recipe)),
        notes=notes,
    )


def _captured(model: nn.Module, data: Data) -> Captured:
    """Traced with two samples, which is quick, and proved on a few; or all on the batch."""
    if data.samples(2) is not None:
        with suppress(Exception):  # the first dimension may be none of a batch
            found = capture(model, run=data.run_few)
            if "" in found.programs:
                return found
    return capture(model, run=data.run_first)


def in_layers(model: nn.Module, order: Order) -> Preparation:
    """The layers of a model as programs, without any data. Raises as ``traced``.

    A model that is a program already needs none to be seen as a whole.
    """
    if programs_of(model):
        return traced(model, order, None)
    original = _original(model, order)
    with inference(original):
        drafts, regions = leaf_regions(original)
    work = sharing(original)
    drafts, notes = remedied(work, [normal(work, d) for d in drafts], order.recipe, None)
    return Preparation(
        order=order,
        original=original,
        work=work,
        regions=regions,
        parts=_finite(work, placed(work, drafts, order.recipe)),
        by_layer=True,
        notes=notes,
    )


def _finite(work: nn.Module, parts: list[Part]) -> list[Part]:
    """The parts; said before data runs through them, where a NaN would seem to be the data's."""
    for part in parts:
        paths = [part.at(v) for v in part.placement.weights if v in part.program.parameters]
        for path in paths:
            weight = find(work, path)
            if not (finite := weight.isfinite()).all():
                raise NonFiniteError(
                    f"the weight {path} holds {int(finite.logical_not().sum())} values that are "
                    f"NaN or infinite among {weight.numel()}: load the model's weights anew, or "
                    "keep the layer in float with hs.Rule(match, keep_float=True)"
                )
    return parts


def watched(preparation: Preparation) -> tuple[nn.Module, list[Watch]]:
    """A copy of the model that runs its float programs with observers, and what watches them."""
    model = sharing(preparation.work)
    room = MOST_BYTES if asks_for_inputs(preparation.order.recipe) else 0
    return model, observe(model, preparation.parts, room)


def finished(
    preparation: Preparation, calibrated: Sequence[Calibrated], notes: Sequence[str] = ()
) -> Result:
    """The quantized model. Raises ``NonFiniteError`` for a weight that is not finite."""
    order, original = preparation.order, preparation.original
    calibrated, notes = with_corrections(preparation, calibrated, notes)
    integers = integers_of(preparation.work, [each.part for each in calibrated])
    before = state_bytes(original)
    model = original if order.inplace else copy.deepcopy(preparation.work)
    if order.inplace:
        _put_folded(preparation.work, model)
    put_together(model, integers, calibrated, order.engine, lenient=preparation.by_layer)
    guard_loading(model)
    shown = integers.parts
    if preparation.by_layer:  # the other ways of calling a layer run alike
        shown = list({part.path: part for part in reversed(shown)}.values())[::-1]
    coverage = coverage_of(
        shown, (preparation.work, model), preparation.regions, (*notes, *integers.notes)
    )
    summary = Summary(
        recipe=order.recipe.name,
        why=order.why,
        bytes_before=before,
        bytes_after=state_bytes(model),
    )
    return Result(model, coverage, summary, order.recipe)


def with_corrections(
    preparation: Preparation, calibrated: Sequence[Calibrated], notes: Sequence[str] = ()
) -> tuple[Sequence[Calibrated], Sequence[str]]:
    """The parts with what remedies correct in the quantized model, and what is to be said."""
    programs = [each.program() for each in calibrated]
    given = [each.part for each in calibrated]
    parts, more = corrected_parts(preparation, given, programs)
    pairs = zip(calibrated, parts, strict=True)
    return [replace(each, part=part) for each, part in pairs], [*notes, *preparation.notes, *more]


def put_together(
    model: nn.Module,
    integers: Integers,
    calibrated: Sequence[Calibrated],
    engine: Engine,
    *,
    lenient: bool,
) -> None:
    """Put the integers into a model, and let its modules run their programs on an engine."""
    integers.put_in(model)
    pairs = zip(calibrated, integers.parts, strict=True)
    quantized = [replace(each, part=part) for each, part in pairs]
    install(model, _programs(quantized), engine, lenient=lenient)


def _original(model: nn.Module, order: Order) -> nn.Module:
    return (model if order.inplace else copy.deepcopy(model)).eval()


def sharing(model: nn.Module) -> nn.Module:
    """A copy with the same parameters, which nothing here ever writes to."""
    return copy.deepcopy(model, {id(value): value for value in model.parameters()})


def _put_folded(work: nn.Module, model: nn.Module) -> None:
    """Put the tensors that folding has changed into the model itself."""
    for name, value in [*work.named_parameters(), *work.named_buffers()]:
        if find(model, name) is not value:
            put(model, name, value.detach())


def _programs(calibrated: Sequence[Calibrated]) -> dict[str, list[Program | Quantized]]:
    found: dict[str, list[Program | Quantized]] = {}
    for each in calibrated:
        if each.part.runs:
            found.setdefault(each.part.path, []).append(each.program())
    return found
