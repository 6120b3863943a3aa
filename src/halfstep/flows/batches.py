"""How data reaches a model: what counts as a batch, and how it becomes arguments.

A bare tensor is one batch; a dict is keyword arguments; a tuple (or a list, as data loaders make
them) is positional arguments; anything else that can be iterated is a series of batches. A function
of the model runs it in its own way.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.flows.progress import steps
from halfstep.spec import Recipe, Rule

Batches: TypeAlias = Any
Forward: TypeAlias = Callable[[nn.Module, Any], Any]


def as_batches(batches: Batches, max_batches: int | None = None) -> Iterable[Any]:
    """The batches of ``batches``, one after the other, at most ``max_batches``."""
    first = batches[0] if isinstance(batches, list) and batches else batches
    if isinstance(first, Recipe | Rule):
        raise ArgumentTypeError(
            f"batches is a {type(batches).__name__}: data come second and the recipe third, or "
            "by name, as in quantize(model, recipe=...)"
        )
    if isinstance(batches, Tensor | Mapping | tuple):
        batches = [batches]
    if not isinstance(batches, Iterable):
        raise ArgumentTypeError(
            f"batches is a {type(batches).__name__}: give a tensor, a tuple or dict of arguments, "
            "a data loader or any iterable of those, or a function that runs the model"
        )
    if max_batches is not None and max_batches < 1:
        raise ArgumentError(f"max_batches={max_batches}: allowed is 1 or more")
    return itertools.islice(batches, max_batches) if max_batches else batches


def run(model: nn.Module, batch: Any, forward: Forward | None = None) -> Any:
    """Run the model on one batch, moved to the model's device."""
    batch = tree_map(lambda value: _moved(value, _device(model)), batch)
    if forward is not None:
        return forward(model, batch)
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list):
        _check_arguments(model, batch)
        return model(*batch)
    return model(batch)


def run_all(
    model: nn.Module,
    batches: Batches,
    *,
    forward: Forward | None = None,
    max_batches: int | None = None,
    progress: bool | None = None,
    title: str = "running",
) -> Iterator[Any]:
    """The model's output for each batch, in eval mode and without gradients."""
    if callable(batches) and not isinstance(batches, Iterable):
        if max_batches is not None or forward is not None:
            raise ArgumentError(
                "batches is a function that runs the model itself: leave out max_batches= and "
                "forward="
            )
        with inference(model):
            yield batches(model)
        return
    seen = False
    for batch in steps(as_batches(batches, max_batches), title, progress=progress):
        seen = True
        with inference(model):
            output = run(model, batch, forward)
        yield output
    if not seen:
        raise ArgumentError("batches holds no batch: give at least one")


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; each module's own mode again afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def _device(model: nn.Module) -> torch.device | None:
    first = next(itertools.chain(model.parameters(), model.buffers()), None)
    return None if first is None else first.device


def _moved(value: Any, device: torch.device | None) -> Any:
    return value.to(device) if isinstance(value, Tensor) and device is not None else value


def _check_arguments(model: nn.Module, batch: tuple[Any, ...] | list[Any]) -> None:
    """A tuple that ``forward`` cannot take; often a loader's (x, label)."""
    signature = inspect.signature(model.forward)
    if _binds(signature, batch):
        return
    takes = (
        f"{type(model).__name__}.forward takes {signature}, and the batch has {len(batch)} values"
    )
    if _binds(signature, batch[:-1]):
        index = "batch[0]" if len(batch) == 2 else "*batch[:-1]"
        raise ArgumentError(
            f"{takes}: if the last is a label, pass forward=lambda model, batch: model({index})"
        )
    raise ArgumentError(f"{takes}: pass forward=lambda model, batch: ... to say how it is run")


def _binds(signature: inspect.Signature, arguments: tuple[Any, ...] | list[Any]) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
