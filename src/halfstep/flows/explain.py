"""Where the accuracy went: one call that measures a quantized model beside its float one."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from torch import nn

from halfstep.errors import ArgumentError, NonFiniteError
from halfstep.flows.advising import Advising, Suggested
from halfstep.flows.batches import Batches, Forward
from halfstep.flows.compare import floats
from halfstep.flows.coverage import PYTHON
from halfstep.flows.data import Data, samples_in
from halfstep.flows.gains import Gains, cost, gains
from halfstep.flows.integers import state_bytes
from halfstep.flows.origins import Origins, origins
from halfstep.flows.progress import steps
from halfstep.flows.result import Result, engine_of
from halfstep.flows.search import Search, variants_of
from halfstep.flows.target import Evaluate, Target
from halfstep.flows.training_mode import left_in_training
from halfstep.flows.trials import Trials, rules_of
from halfstep.flows.variants import Variants
from halfstep.report.advice import candidates
from halfstep.report.errors import error_between
from halfstep.report.explanation import Explanation
from halfstep.report.measure import Measuring
from halfstep.report.records import Error, Kept, Layer
from halfstep.spec.recipe import Recipe

# A number from what the model returned and the labels of the batch; the mean over samples is shown.
Metric: TypeAlias = Callable[[Any, Any], float]


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """How the data is run, and what is to be found."""

    metric: Metric | None
    target: Target
    timed: bool


def explain(  # noqa: PLR0913  (one call is the whole flow)
    model: nn.Module,
    quantized: Result | nn.Module,
    batches: Batches,
    *,
    forward: Forward | None = None,
    max_batches: int | None = None,
    metric: Metric | None = None,
    min_sqnr: float | None = None,
    evaluate: Evaluate | None = None,
    max_drop: float | None = None,
    recipe: Recipe | None = None,
    timed: bool = True,
    progress: bool | None = None,
) -> Explanation:
    """What quantizing did to each layer of a model, why, and what to do.

    model: the float one. quantized: what ``hs.ptq.quantize`` returned; or a quantized model, of
        which the recipe has to be given for advice; or another float model of the same program.
    batches, forward, max_batches: as for ``hs.ptq.quantize``; what is said holds for this data.
    metric: ``metric(output, labels)``, a number such as an accuracy; the batches are then tuples
        whose last item is the labels.
    min_sqnr, or evaluate and max_drop: a target, as for ``hs.ptq.quantize``: the fewest layers are
        searched which, kept in float, bring the model there.
    timed: whether the milliseconds of each layer are measured.

    For every layer: its own error, quantized alone on float inputs; the error that has gathered
    there; the source of its own error; ranges, outliers and integers. Advice is kept if it helps
    at the output, measured. Batches run one after the other, and no value is kept.

    Raises ``ArgumentError`` for models that do not match, with their first difference, and for a
    metric that returns no number.

    >>> import halfstep as hs, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    >>> x = torch.randn(64, 8)
    >>> from halfstep.flows.explain import explain
    >>> found = explain(net, hs.ptq.quantize(net, x), x)
    >>> [(layer.layer, layer.runs) for layer in found.layers]
    [('0', 'int8'), ('2', 'int8')]
    """
    if metric is not None and forward is None:
        forward = _without_labels
    target = Target(min_sqnr=min_sqnr, evaluate=evaluate, max_drop=max_drop)
    data = Data(batches, forward, max_batches, progress, title="running the float model")
    asked = _Asked(metric=metric, target=target, timed=timed)
    return _explained(origins(model, quantized, data, recipe), model, data, asked)


def _without_labels(model: nn.Module, batch: Any) -> Any:
    """All of a batch but its labels, as arguments."""
    return model(*_labelled(batch)[:-1])


def _labelled(batch: Any) -> Any:
    """A batch that ends with its labels."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ArgumentError(
            f"metric= takes labels, and a batch is a {type(batch).__name__}: give batches of "
            "(inputs, labels)"
        )
    return batch


def _explained(found: Origins, model: nn.Module, data: Data, asked: _Asked) -> Explanation:
    preparation = found.preparation
    data.run_all(preparation.original)
    engine = engine_of(found.model) or preparation.order.engine
    measuring = Measuring((preparation.work, found.model), found.pairs, engine)
    output, task = _measured(measuring, data, asked.metric)
    layers = measuring.layers()
    times = gains(preparation.original, found.model, data) if asked.timed else Gains()
    layers = tuple(times.of(layer) for layer in _with_reasons(layers, found.result))
    advice = left_in_training(model, found.model, data, output)
    variants = None if found.result is None else variants_of(found.result, data)
    suggested = _suggested(variants, layers, data, output)
    return Explanation(
        model=type(model).__name__,
        recipe=preparation.order.recipe,
        engine=engine.name,
        output=output,
        layers=layers,
        advice=(*advice, *suggested.advice),
        suggested_recipe=suggested.recipe,
        suggested_sqnr=suggested.sqnr,
        kept=_kept(variants, asked.target, layers),
        task=task,
        notes=_notes(found, data, output),
        batches=len(data.kept),
        samples=0 if data.is_function else sum(samples_in(batch) for batch, _ in data.kept),
        before=state_bytes(preparation.original),
        after=state_bytes(found.model),
        float_ms=times.float_ms,
        ms=times.ms,
    )


def _with_reasons(layers: tuple[Layer, ...], result: Result | None) -> Iterator[Layer]:
    """The layers, with what the coverage says of them."""
    rows = {row.value: row.why for row in result.coverage} if result is not None else {}
    for layer in layers:
        said = (rows.get(name, "") for name in (layer.operators or (layer.value,)))
        yield replace(layer, why=next(filter(None, said), layer.why))


def _measured(
    measuring: Measuring, data: Data, metric: Metric | None
) -> tuple[Error, tuple[float, float] | None]:
    """The error of the outputs, and the metric of both models; the layers are in ``measuring``."""
    output, scores, count = Error(), [0.0, 0.0], 0
    for batch, _ in steps(data.kept, "explaining", progress=data.progress):
        both = measuring.run(partial(_run, data, batch))
        output += error_between(*map(floats, both)) or Error()
        if metric is not None:
            size = samples_in(batch)
            count += size
            scores = [
                total + size * _score(metric, found, batch)
                for total, found in zip(scores, both, strict=True)
            ]
    return output, (scores[0] / count, scores[1] / count) if count else None


def _run(data: Data, batch: Any, model: nn.Module) -> Any:
    return data.run(model, batch)


def _score(metric: Metric, output: Any, batch: Any) -> float:
    """The metric of one batch, whose last item is the labels."""
    found = metric(output, _labelled(batch)[-1])
    try:
        return float(found)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"metric= returned {found!r}: it has to return a number, such as the share of right "
            "answers"
        ) from None


def _suggested(
    variants: Variants | None, layers: tuple[Layer, ...], data: Data, output: Error
) -> Suggested:
    """The advice that helps; none where nothing can be measured, or nothing differs.

    Data in which values are not finite have no ranges, and are what is wrong.
    """
    is_known = math.isfinite(output.noise) or _is_finite(data)
    if variants is None or not output.noise or not data.kept or not is_known:
        return Suggested()
    found = candidates(layers, rules_of(variants.preparation))
    try:
        return Advising(Trials(variants, data)).suggested(found)
    except NonFiniteError:
        return Suggested()


def _kept(variants: Variants | None, target: Target, layers: tuple[Layer, ...]) -> Kept | None:
    if not target.is_asked:
        return None
    if variants is None:
        raise ArgumentError(
            "a target needs what hs.ptq.quantize returned, or a model with the recipe that it was "
            "made by: give recipe=, or quantize the float model with the target: "
            "hs.ptq.quantize(model, batches, min_sqnr=...)"
        )
    kept, _ = Search(variants, target).run()
    return replace(kept, ms=cost(layers, kept.layers))


def _notes(found: Origins, data: Data, output: Error) -> tuple[str, ...]:
    notes = []
    if not output.elements:
        notes.append("the model returns no float values here, so its output is not compared")
    if not math.isfinite(output.noise) and not _is_finite(data):
        notes.append("the float model itself returns values that are not finite: look at the data")
    if len(data.kept) < data.count:
        notes.append(f"measured on the first {len(data.kept)} of {data.count} batches: no more fit")
    if found.result is None and output.noise:
        notes.append(
            "no advice is measured: it needs the recipe that this model was made by, and the "
            "result of hs.ptq.quantize itself where that corrects biases or batch norms"
        )
    if found.result is not None:
        rows = found.result.coverage
        notes += [f"{row.layer or 'the model'}: {row.why}" for row in rows if row.op == PYTHON]
        notes += rows.notes
    return tuple(notes)


def _is_finite(data: Data) -> bool:
    """Whether the float model returned only finite values."""
    return all(bool(y.isfinite().all()) for _, expected in data.kept for y in expected)
