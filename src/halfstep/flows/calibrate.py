"""Run data through a model once, and see which ranges its layers need."""

from collections.abc import Iterator

from torch import nn

from halfstep.errors import ArgumentError
from halfstep.flows.activations import on_inputs, on_outputs
from halfstep.flows.batches import Batches, Forward, run_all
from halfstep.flows.layers import Layer, Recipe, find_layers
from halfstep.flows.quantizers import make_observer
from halfstep.flows.tally import Named
from halfstep.observe import Observer

_ATTACH = {"input": on_inputs, "output": on_outputs}


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

    Raises ``ArgumentError`` for a match that names no layer, or whose layers saw no data.

    >>> import halfstep as hs, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> observers = hs.calibrate(model, torch.randn(8, 2), {"1": hs.MinMaxObserver(hs.uint8)})
    >>> list(observers), observers["1"].min_val.item() >= 0
    (['1'], True)
    """
    observers: dict[str, Observer] = {}
    handles = []
    try:
        for layer in find_layers(model, recipe):
            for slot, observer in _watchers(layer):
                observers[layer.name if slot == "output" else f"{layer.name}:{slot}"] = observer
                watch = Named(observer, f"the {slot} of {layer.title}")
                handles.append(_ATTACH[slot](layer.module, watch, watch=True))
        if not observers:
            raise ArgumentError(
                "the recipe asks for no input and no output, so there is nothing to observe: "
                "give {match: observer}, or rules with input= or output="
            )
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
    _check_seen(observers)
    return observers


def _watchers(layer: Layer) -> Iterator[tuple[str, Observer]]:
    """The observers that a rule asks for, each with the slot that it watches."""
    for slot in ("input", "output"):
        observer = None if getattr(layer.rule, slot) is None else make_observer(layer, slot)
        if observer is not None:
            observer.name = layer.title
            yield slot, observer


def _check_seen(observers: dict[str, Observer]) -> None:
    unseen = [
        name or "(the model itself)" for name, observer in observers.items() if not observer.count
    ]
    if unseen:
        raise ArgumentError(
            f"no data reached {', '.join(unseen)}: the batches do not run these layers, or as "
            "functions and not as modules; leave them out, or give batches that do"
        )
