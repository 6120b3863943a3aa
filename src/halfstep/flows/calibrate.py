"""Run data through a model once, and see which ranges its layers need."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn
from torch.utils.hooks import RemovableHandle

from halfstep.errors import ArgumentError, HalfstepWarning
from halfstep.flows.activations import on_inputs, on_outputs
from halfstep.flows.batches import Batches, Forward, run_all
from halfstep.flows.layers import Layer, Recipe, find_layers
from halfstep.flows.quantizers import make_observer
from halfstep.flows.tally import Named
from halfstep.observe import Observer


def calibrate(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    forward: Forward | None = None,
    max_batches: int | None = None,
    progress: bool | None = None,
) -> dict[str, Observer]:
    """Observe what the layers of a model compute on some data.

    batches: a tensor is one batch; a dict is keyword arguments, a tuple positional ones; or an
        iterable of those, or a function that runs the model.
    recipe: ``{match: observer}`` for the outputs of the layers that match, or rules. An observer is
        a template: each layer gets a copy.
    forward: how one batch is run, ``forward(model, batch)``; by default ``model(*batch)``.
    progress: a bar on stderr; by default on a terminal.

    The data runs once, in eval mode and without gradients; the mode is restored. Returns the
    observers by layer name; that of an input is called ``name:input``.

    Weights are not observed: their range is their own. A layer that no data reached is left out,
    with a warning that names it.

    Raises ``ArgumentError`` for a match that names no layer, or of whose layers none saw data.

    >>> import halfstep as hs, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> observers = hs.calibrate(model, torch.randn(8, 2), {"1": hs.MinMaxObserver(hs.uint8)})
    >>> list(observers), observers["1"].min_val.item() >= 0
    (['1'], True)
    """
    watched = [one for layer in find_layers(model, recipe) for one in _watchers(layer)]
    if not watched:
        raise ArgumentError(
            "the recipe asks for no input and no output, so there is nothing to observe: "
            "give {match: observer}, or rules with input= or output="
        )
    handles = [one.attach() for one in watched]
    try:
        for _ in run_all(
            model,
            batches,
            forward=forward,
            max_batches=max_batches,
            progress=progress,
            title="calibrating",
        ):
            pass
    finally:
        for handle in handles:
            handle.remove()
    return {one.key: one.observer for one in _seen(watched)}


@dataclass(frozen=True, slots=True)
class _Watched:
    """One slot of one layer, and the observer that watches it."""

    layer: Layer
    slot: str
    observer: Observer

    @property
    def key(self) -> str:
        """The name in the result."""
        return self.layer.name if self.slot == "output" else f"{self.layer.name}:{self.slot}"

    def attach(self) -> RemovableHandle:
        """Let the observer watch."""
        attach = on_inputs if self.slot == "input" else on_outputs
        watch = Named(self.observer, f"the {self.slot} of {self.layer.title}")
        return attach(self.layer.module, watch, watch=True)


def _watchers(layer: Layer) -> Iterator[_Watched]:
    """The observers that a rule asks for; weights need no data."""
    for slot in ("input", "output"):
        if getattr(layer.rule, slot) is not None:
            yield _Watched(layer, slot, make_observer(layer, slot))


def _seen(watched: list[_Watched]) -> list[_Watched]:
    """Those that saw data: some of each rule, or it is an error; the others are named."""
    unseen = [one for one in watched if not one.observer.count]
    alive = {id(one.layer.rule) for one in watched if one.observer.count}
    names = ", ".join(dict.fromkeys(one.layer.title for one in unseen))
    why = (
        f"no data reached {names}: the batches do not run these layers, or as functions and not as "
        "modules"
    )
    if any(id(one.layer.rule) not in alive for one in unseen):
        raise ArgumentError(f"{why}; leave them out, or give batches that do")
    if unseen:
        warnings.warn(f"{why}; they are left out", HalfstepWarning, stacklevel=3)
    return [one for one in watched if one.observer.count]
