"""Batch norms that were left in training mode: they compute with each batch's own statistics."""

import copy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from halfstep.flows.batches import run
from halfstep.flows.compare import Noise, floats
from halfstep.flows.data import Data, copied
from halfstep.report.records import Advice, Error
from halfstep.report.words import decibels


def left_in_training(
    model: nn.Module, quantized: nn.Module, data: Data, output: Error
) -> tuple[Advice, ...]:
    """Advice for the batch norms of a float model that are in training mode.

    The model is quantized as it is in eval mode. As it was given, it returns something else, so
    that the quantized one seems to be wrong: how far off it seems is measured, on a copy.
    """
    names = [name for name, one in model.named_modules() if _uses_batch(one)]
    if not names or not data.kept or data.is_function:
        return ()
    seems = _sqnr(model, quantized, data)
    evidence = (
        f"it normalizes by each batch's own statistics: as it was given, the float model is at "
        f"{decibels(seems)} of the quantized one, and in eval mode at {decibels(output.sqnr)}"
    )
    action = "Call model.eval() before the float model is run; the quantized one is right"
    harm = max(output.sqnr - seems, 0.0)
    first, *others = names
    if others:
        evidence = f"and {len(others)} more of its kind: {evidence}"
    return (Advice(first, "batch norm in training mode", evidence, action, harm=harm),)


def _uses_batch(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and module.training and module.track_running_stats


def _sqnr(model: nn.Module, quantized: nn.Module, data: Data) -> float:
    """The quantized model against the float one, the batch norms in their own mode."""
    twin = copy.deepcopy(model)
    noise = Noise()
    for batch, _ in data.kept:
        for name, one in model.named_modules():
            twin.get_submodule(name).training = _uses_batch(one)
        with torch.no_grad():
            expected = floats(run(twin, copied(batch), data.forward))
        noise.add(expected, floats(data.run(quantized, batch)))
    return float("nan") if noise.sqnr is None else noise.sqnr
