"""What quantizing some layers would do to a model, for the length of a ``with`` or for good."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn
from torch.utils.hooks import RemovableHandle

from halfstep.errors import ArgumentError
from halfstep.flows.activations import on_inputs, on_outputs
from halfstep.flows.layers import Layer, Recipe, find_layers
from halfstep.flows.quantizers import make_quantizer
from halfstep.flows.tally import Counted, Named, SimulationReport
from halfstep.flows.weights import WeightSite, WeightSwap, weight_names
from halfstep.observe import FakeQuantize

Model = TypeVar("Model", bound=nn.Module)


@contextmanager
def simulate(model: nn.Module, recipe: Recipe) -> Iterator[SimulationReport]:
    """Run a model inside the ``with`` as if some of its layers were quantized.

    recipe: ``{match: spec}`` for the weights of the layers that match, or rules with ``weight=``,
        ``input=``, ``output=``. ``match`` is a name, a glob, a module type or a module. Instead of
        a spec: an observer, a ``FakeQuantize``, or any function from tensor to tensor.

    Ranges are those of the tensor at hand, or an observer's. Gradients flow straight through.
    Shared modules and tied weights are simulated once; of nested simulations the inner one wins.
    On exit, also by an exception, the model is exactly as it was. A deep copy made inside the
    ``with`` stays simulated: use ``simulated`` for that.

    Yields a report of the error of each layer. Raises ``ArgumentError`` for a match that names no
    layer, for a compiled model, and for weights that are computed from other parameters.

    >>> import halfstep as hs, torch
    >>> model = torch.nn.Linear(4, 4)
    >>> x = torch.randn(2, 4)
    >>> plain = model(x)
    >>> with hs.simulate(model, {"": hs.int2}) as report:
    ...     coarse = model(x)
    >>> torch.equal(plain, coarse), torch.equal(plain, model(x))
    (False, True)
    """
    made = Simulation(find_layers(model, recipe), keep=False)
    handles = made.attach(model)
    try:
        yield SimulationReport(made.counted)
    finally:
        made.detach(handles)


def simulated(model: Model, recipe: Recipe) -> Model:
    """A copy of a model that always runs as ``simulate`` does; it trains and saves.

    Observers and ``FakeQuantize`` become submodules of their layers (``weight_quantizer``,
    ``input_quantizer``, ``output_quantizer``), so ``state_dict`` holds their ranges and
    ``parameters`` their learned scales. They go on observing, in eval mode too, until ``freeze()``.

    Raises ``ArgumentError`` for a match that names no layer.

    >>> import halfstep as hs, torch
    >>> copied = hs.simulated(torch.nn.Linear(4, 4), {"": hs.QSpec(hs.int8, hs.PerChannel(0))})
    >>> copied(torch.randn(2, 4)).sum().backward()
    >>> copied.weight.grad.shape
    torch.Size([4, 4])
    """
    copied = copy.deepcopy(model)
    pairs = zip(model.modules(), copied.modules(), strict=True)
    twin = dict(pairs)
    layers = [Layer(at.name, twin[at.module], at.rule) for at in find_layers(model, recipe)]
    Simulation(layers, keep=True).attach(copied)
    return copied


class Simulation:
    """The quantizers of a recipe for the layers of a model; ``keep`` makes them part of it."""

    def __init__(self, layers: list[Layer], *, keep: bool) -> None:
        self.keep = keep
        self.counted: dict[str, dict[str, Counted]] = {}
        self._weights: list[WeightSite] = []
        self._activations: list[tuple[Layer, str, Named]] = []
        self._swap: WeightSwap | None = None
        check_weights(layers)
        for layer in layers:
            self.counted[layer.name] = {}
            self._add(layer)

    def _add(self, layer: Layer) -> None:
        if layer.rule.weight is not None:
            for name in weight_names(layer.module):
                quantizer = self._quantizer(layer, "weight", name)
                self._weights.append(WeightSite(layer.module, name, quantizer))
        for slot in ("input", "output"):
            if getattr(layer.rule, slot) is not None:
                self._activations.append((layer, slot, self._quantizer(layer, slot, slot)))

    def _quantizer(self, layer: Layer, slot: str, name: str) -> Named:
        quantizer = make_quantizer(layer, slot)
        if isinstance(quantizer, FakeQuantize):
            quantizer.observer.name = layer.title
        title = f"the {name} of {layer.title}"
        if not self.keep:
            self.counted[layer.name][name] = Counted(quantizer, title)
            return self.counted[layer.name][name]
        if isinstance(quantizer, nn.Module):
            layer.module.add_module(f"{name}_quantizer", quantizer)
        return Named(quantizer, title)

    def attach(self, model: nn.Module) -> list[RemovableHandle]:
        """Hook the quantizers to the model."""
        attach = {"input": on_inputs, "output": on_outputs}
        handles = [attach[slot](layer.module, named) for layer, slot, named in self._activations]
        if self._weights:
            self._swap = WeightSwap(model, self._weights)
            handles += self._swap.attach()
        return handles

    def detach(self, handles: list[RemovableHandle]) -> None:
        """Take the hooks away, and give swapped weights back should a call have been cut off."""
        for handle in handles:
            handle.remove()
        if self._swap is not None:
            self._swap.restore()


def check_weights(layers: list[Layer]) -> None:
    """Refuse a rule for weights that finds none."""
    for rule in {id(layer.rule): layer.rule for layer in layers}.values():
        mine = [layer for layer in layers if layer.rule is rule]
        if rule.weight is not None and not any(weight_names(layer.module) for layer in mine):
            kinds = ", ".join(sorted({type(layer.module).__name__ for layer in mine}))
            inside = next((layer for layer in mine if any(layer.module.children())), None)
            way = f"match the layers inside it, such as {_glob(inside)!r}, or " if inside else ""
            raise ArgumentError(
                f"{rule.match!r} matches {kinds}, without a weight of two or more dimensions: {way}"
                "quantize what goes in or comes out, as in "
                "hs.Rule(match, input=hs.uint8, output=hs.uint8)"
            )


def _glob(layer: Layer) -> str:
    return f"{layer.name}.*" if layer.name else "*"


def is_affected(layer: Layer) -> bool:
    """Whether a simulation changes anything at a layer: a glob also takes those without weights."""
    rule = layer.rule
    if rule.input is not None or rule.output is not None:
        return True
    return rule.weight is not None and bool(weight_names(layer.module))
