"""Quantized models of every kind, measured."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

import halfstep as hs
from halfstep.flows.result import Result
from halfstep.report.measure import Measuring, Pair
from halfstep.report.records import Layer


def pairs_of(result: Result) -> list[Pair]:
    """The programs of a result, in float and as they are quantized."""
    by_path: dict[str, list[Any]] = {}
    for part in result.preparation.parts:
        if part.runs:
            by_path.setdefault(part.path, []).append(part)
    return [
        Pair(path, part.program, quantized)
        for path, several in by_path.items()
        for part, quantized in zip(several, result.parts[path], strict=True)
    ]


def measuring(result: Result) -> Measuring:
    """What measures a result beside its float model."""
    made = result.preparation
    return Measuring((made.work, result.model), pairs_of(result), made.order.engine)


def measured(
    model: nn.Module,
    batches: Iterable[Any],
    recipe: Any = None,
    *,
    call: Callable[[nn.Module, Any], Any] = lambda model, x: model(x),
) -> tuple[Layer, ...]:
    """The layers of a model quantized on the first batch, measured on all."""
    batches = list(batches)
    result = hs.ptq.quantize(model, batches[:1], recipe, forward=call, check="none")
    work = measuring(result)
    with torch.no_grad():
        for batch in batches:
            work.run(lambda model, batch=batch: call(model.eval(), batch))
    return work.layers()
