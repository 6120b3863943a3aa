"""What was gained: milliseconds of each layer and of the whole model, float against integer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn

from halfstep.flows.data import Data
from halfstep.flows.result import engine_of
from halfstep.flows.step_times import StepTime, step_times
from halfstep.flows.timing import medians
from halfstep.report.records import Layer

_SECONDS = 0.4


@dataclass(frozen=True)
class Gains:
    """The times of operators, by path and value name; and of one call of both models."""

    steps: Mapping[str, StepTime] = field(default_factory=dict)
    float_ms: float | None = None
    ms: float | None = None

    def of(self, layer: Layer) -> Layer:
        """The layer with its times, where it was timed."""
        found = next((self.steps[name] for name in layer.operators if name in self.steps), None)
        if found is None:
            return layer
        return replace(layer, float_ms=found.float_ms, ms=found.ms)


def gains(float_model: nn.Module, model: nn.Module, data: Data) -> Gains:
    """The times of a quantized model on one sample of the data, and of its float form."""
    engine = engine_of(model)
    if engine is None or data.is_function:
        return Gains()
    sample = data.samples(1)
    batch = data.first if sample is None else sample

    def call(one: nn.Module) -> object:
        return data.run(one, batch)

    whole = medians(
        {"float": partial(call, float_model), "as it is": partial(call, model)}, _SECONDS
    )
    steps = step_times(model, batch, engine, forward=data.forward)
    return Gains(steps, float_ms=whole["float"], ms=whole["as it is"])


def cost(layers: Iterable[Layer], kept: Iterable[str]) -> float | None:
    """The milliseconds that keeping some layers in float costs; None where they were not timed."""
    names = set(kept)
    timed = [
        layer.float_ms - layer.ms
        for layer in layers
        if layer.layer in names and layer.float_ms is not None and layer.ms is not None
    ]
    return sum(timed) if timed else None
