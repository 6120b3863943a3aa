"""Which layer hurts: the damage that quantizing each alone does to the output."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from halfstep.errors import ArgumentError
from halfstep.flows.batches import Batches, Forward, as_batches, run_all
from halfstep.flows.layers import Layer, Recipe, find_layers
from halfstep.flows.progress import steps
from halfstep.flows.simulate import check_weights, is_affected, simulate
from halfstep.numerics.metrics import sqnr_of
from halfstep.spec import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What quantizing one layer alone does to a model's output.

    layer: its name.
    sqnr: signal-to-quantization-noise ratio of the output in dB, over all data; infinite where the
        output does not change, and NaN where it is no number.

    >>> import halfstep as hs
    >>> print(hs.Sensitivity(layer="conv1", sqnr=21.53))
    conv1: 21.5 dB
    """

    layer: str
    sqnr: float

    def __str__(self) -> str:
        return f"{self.layer or '(the model itself)'}: {self.sqnr:.1f} dB"


def sensitivity(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    forward: Forward | None = None,
    max_batches: int | None = None,
    progress: bool | None = None,
) -> list[Sensitivity]:
    """Simulate one layer at a time, and measure the model's output; the most sensitive first.

        SQNR = 10 log10(sum y^2 / sum (y - y')^2)

    over the float tensors of all outputs, y of the model and y' with one layer quantized.
    Arguments as for ``calibrate``; the recipe as for ``simulate``. The data runs once for each
    layer and once more; the float outputs are kept. A layer whose output is NaN comes first.

    Raises ``ArgumentError`` for a match that names no layer, for no batches, and for a model that
    returns no float tensor.

    >>> import halfstep as hs, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    >>> worst, best = hs.sensitivity(model, torch.randn(16, 8), {"0": hs.int2, "1": hs.int8})
    >>> worst.layer, best.layer
    ('0', '1')
    """
    kept = batches if callable(batches) else list(as_batches(batches, max_batches))
    layers = find_layers(model, recipe)
    check_weights(layers)
    layers = [layer for layer in layers if is_affected(layer)]

    def outputs() -> Iterator[Any]:
        return run_all(model, kept, forward=forward, progress=False)

    reference = [_floats(output) for output in outputs()]
    if not any(reference):
        raise ArgumentError("the model returns no float tensor, so there is nothing to compare")
    found = []
    for layer in steps(layers, "sensitivity", progress=progress):
        with simulate(model, [_only(layer)]):
            pairs = zip(reference, map(_floats, outputs()), strict=True)
            found.append(Sensitivity(layer=layer.name, sqnr=_sqnr(pairs)))
    return sorted(found, key=lambda one: -math.inf if math.isnan(one.sqnr) else one.sqnr)


def _only(layer: Layer) -> Rule:
    rule = layer.rule
    return replace(rule, match=layer.module)


def _floats(output: Any) -> list[Tensor]:
    leaves = tree_leaves(output)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def _sqnr(pairs: Iterator[tuple[list[Tensor], list[Tensor]]]) -> float:
    signal = noise = 0.0
    for before, after in pairs:
        for y, approximation in zip(before, after, strict=True):
            signal += float(y.double().square().sum())
            noise += float((y.double() - approximation.double()).square().sum())
    return sqnr_of(signal, noise)
