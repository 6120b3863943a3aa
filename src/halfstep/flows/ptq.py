"""Quantize a model after training: in one call, or in two around one's own data loop.

>>> import halfstep as hs, torch
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
>>> result = hs.ptq.quantize(model, torch.randn(64, 8))
>>> result.model[0].weight.int_repr().dtype
torch.int8
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from halfstep.errors import ArgumentError
from halfstep.flows.batches import Batches, Forward
from halfstep.flows.data import Data
from halfstep.flows.judge import accuracy, equality, warn_of_collapse
from halfstep.flows.layers import Recipe
from halfstep.flows.leaves import dtypes_in
from halfstep.flows.order import Order, order
from halfstep.flows.origin import Preparation
from halfstep.flows.preparation import (
    Calibrated,
    finished,
    in_layers,
    traced,
    watched,
)
from halfstep.flows.result import Result
from halfstep.flows.search import reaching
from halfstep.flows.target import Evaluate, Target
from halfstep.flows.variants import Variants
from halfstep.flows.watch import Watch, kept_by, watches_in
from halfstep.graph.engine import Engine

_CHECKS = ("one", "all", "none")
# Where a prepared model keeps what convert needs.
_PREPARATION = "halfstep_preparation"
_NO_DATA = (
    "without data only layers are seen: functions between them, and layers that are called in "
    "unusual ways, as with packed sequences, run in float"
)


def quantize(  # noqa: PLR0913  (one call is the whole flow)
    model: nn.Module,
    batches: Batches | None = None,
    recipe: Recipe | None = None,
    *,
    forward: Forward | None = None,
    max_batches: int | None = None,
    inplace: bool = False,
    progress: bool | None = None,
    engine: str | Engine = "torch",
    check: str = "one",
    min_sqnr: float | None = None,
    evaluate: Evaluate | None = None,
    max_drop: float | None = None,
) -> Result:
    """A model that runs in integers, of the same class.

    batches: data to find ranges on: a tensor is one batch, a dict is keyword arguments, a tuple
        positional ones; or an iterable of those, or a function that runs the model.
    recipe: ``hs.recipes``, one's own rules, or a dict; by default static_int8 with batches and
        dynamic_int8 without.
    forward: how one batch is run, ``forward(model, batch)``; by default ``model(*batch)``.
    inplace: change the model that was given; by default it stays as it is.
    engine: what runs the model, "torch" or "reference".
    check: whether the engine's integers are compared with the reference on "one" sample, on "all"
        batches, or on "none".
    min_sqnr: the SQNR of the outputs, in dB on the batches, that the model has to reach; or
    evaluate, max_drop: a function of a model that returns a number, more being better, and by how
        much it may be less than for the float model.

    Where the recipe alone does not reach such a target, the fewest layers are searched which, kept
    in float, bring the model there. The recipe of the result has a rule for each, and its summary
    says what they bring and cost.

    With batches the model is traced, calibrated, and compared with its float form: below 10 dB a
    warning names the value that suffers most. Without, its layers are quantized one by one.

    Raises ``ArgumentError`` for a rule that matches nothing, a layer that no data reached, and a
    recipe or target that needs data where there is none; ``NonFiniteError`` that names the layer.

    >>> import torch
    >>> from halfstep.flows import ptq
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    >>> result = ptq.quantize(model, torch.randn(32, 8))
    >>> result.model(torch.randn(5, 8)).shape, result.summary.sqnr > 25
    (torch.Size([5, 4]), True)
    """
    if check not in _CHECKS:
        raise ArgumentError(f"check={check!r}: allowed are {', '.join(map(repr, _CHECKS))}")
    target = Target(min_sqnr=min_sqnr, evaluate=evaluate, max_drop=max_drop)
    asked = order(model, recipe, has_data=batches is not None, engine=engine, inplace=inplace)
    if batches is None:
        return _without_data(model, asked, target)
    data = Data(batches, forward, max_batches, progress)
    preparation = traced(model, asked, data)
    prepared, watches = watched(preparation)
    data.run_all(prepared)
    result = accuracy(_converted(preparation, watches, target, data), data)
    if check != "none":
        result = equality(result, data, asked.engine, everywhere=check == "all")
    warn_of_collapse(result, preparation.work, watches_in(prepared), asked.engine)
    return result


def _without_data(model: nn.Module, asked: Order, target: Target) -> Result:
    if target.min_sqnr is not None:
        raise ArgumentError(
            f"min_sqnr={target.min_sqnr:g} is measured on data, and there is none: give batches"
        )
    preparation = in_layers(model, asked)
    work, parts = preparation.work, preparation.parts
    known = [Calibrated(part, dtypes=dtypes_in(work, part)) for part in parts]
    return _made(Variants(preparation, known), target, [_NO_DATA] * preparation.by_layer)


def prepare(
    model: nn.Module,
    example: Any,
    recipe: Recipe | None = None,
    *,
    forward: Forward | None = None,
    engine: str | Engine = "torch",
) -> nn.Module:
    """A copy of the model, of its class, that runs in float and observes what it computes.

    example: a batch to trace the model with, as one of ``quantize``'s; it is not observed.

    Run data through it in any way, ``hs.reset_observers`` to start again, and ``convert`` it.

    Raises ``ArgumentError`` for a rule that matches nothing.

    >>> import torch
    >>> from halfstep.flows import ptq
    >>> prepared = ptq.prepare(torch.nn.Linear(8, 4), torch.randn(2, 8))
    >>> _ = prepared(torch.randn(32, 8))
    >>> print(ptq.convert(prepared).coverage.rows[0].runs)
    int8
    """
    asked = order(model, recipe, has_data=True, engine=engine)
    preparation = traced(model, asked, Data([example], forward))
    prepared, _ = watched(preparation)
    vars(prepared)[_PREPARATION] = preparation
    return prepared


def convert(prepared: nn.Module) -> Result:
    """The quantized model of one that ``prepare`` made, with the ranges seen so far.

    The prepared model stays as it is, so that it may see more data and be converted again.

    Raises ``ArgumentError`` for another model and for a layer that no data has reached, and
    ``NonFiniteError`` that names the layer.
    """
    preparation = vars(prepared).get(_PREPARATION) if isinstance(prepared, nn.Module) else None
    if not isinstance(preparation, Preparation):
        raise ArgumentError(
            f"this {type(prepared).__name__} is not prepared: make it with "
            "hs.ptq.prepare(model, example, recipe)"
        )
    watches = [watch for several in watches_in(prepared).values() for watch in several]
    return _converted(preparation, watches)


def _converted(
    preparation: Preparation,
    watches: list[Watch],
    target: Target | None = None,
    data: Data | None = None,
) -> Result:
    preparation = replace(preparation, inputs=kept_by(watches))
    calibrated = [
        Calibrated(
            watch.part,
            watch.edges(),
            watch.shapes_in(preparation.work.get_submodule(watch.part.path)),
            watch.dtypes,
        )
        for watch in watches
    ]
    notes = [note for watch in watches for note in watch.dead()]
    result = _made(Variants(preparation, calibrated, data), target or Target(), notes)
    batches = max((watch.runs for watch in watches), default=0)
    return replace(result, summary=replace(result.summary, batches=batches))


def _made(variants: Variants, target: Target, notes: list[str]) -> Result:
    """The result, with the layers in float that the target asks for; it remembers its float model.

    There is none where the model was changed in place.
    """
    kept, variant = reaching(variants, target)
    preparation = variant.preparation
    result = finished(preparation, variant.calibrated, notes)
    result = replace(result, summary=replace(result.summary, kept=kept))
    if preparation.order.inplace:
        return result
    return replace(result, again=_again, preparation=preparation)


def _again(preparation: Preparation, batches: Batches, options: Mapping[str, Any]) -> Result:
    asked = preparation.order
    return quantize(preparation.original, batches, asked.recipe, engine=asked.engine, **options)
