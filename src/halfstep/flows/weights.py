"""Simulated weights: while a model runs, its parameters are their quantized values.

A swap happens when the model, or any module on the way to a simulated layer, is called, and is
undone when that call ends, whatever happens. So also weights that their layer's parent uses itself
(attention's output projection) are simulated, and outside of a call the model is as it was.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_ORIGINAL = "_halfstep_original"


def weight_names(module: nn.Module) -> list[str]:
    """The parameters of a module itself that are weights: floats of two or more dimensions."""
    return [
        name
        for name, value in module._parameters.items()
        if value is not None and value.is_floating_point() and value.ndim > 1 and "bias" not in name
    ]


class WeightSite:
    """One parameter of one layer, and what stands for its format."""

    def __init__(self, module: nn.Module, name: str, quantizer: Callable[[Tensor], Tensor]) -> None:
        self.module, self.name, self.quantizer = module, name, quantizer

    def current(self) -> Tensor:
        """The parameter as it is now."""
        value = self.module._parameters[self.name]
        assert value is not None  # noqa: S101  (weight_names has seen to it)
        return value

    def put(self, value: Tensor) -> None:
        """Let the module use another tensor; recurrent layers list their weights once more."""
        parameters: dict[str, Any] = self.module._parameters
        parameters[self.name] = value
        if isinstance(self.module, nn.RNNBase):
            flat = self.module._flat_weights
            flat[self.module._flat_weights_names.index(self.name)] = value

    def quantized(self, original: Tensor) -> Tensor:
        """The quantized values of the original."""
        made = self.quantizer(original)
        if made is original:  # a quantizer that changes nothing; the mark must not land on it
            made = original.view_as(original)
        setattr(made, _ORIGINAL, original)
        return made


class WeightSwap:
    """The simulated weights of one recipe; tied weights are quantized once."""

    def __init__(self, model: nn.Module, sites: list[WeightSite]) -> None:
        self.sites = sites
        self._replaced: list[Tensor] = []
        self._running: list[nn.Module] = []
        self._entrances = list(_entrances(model, {site.module for site in sites}))

    def attach(self) -> list[RemovableHandle]:
        """Hook the swap to every module whose call may use one of the weights."""
        return [
            handle
            for module in self._entrances
            for handle in (
                module.register_forward_pre_hook(self.enter),
                # First, so that an inner simulation is undone before an outer one.
                module.register_forward_hook(self.leave, prepend=True, always_call=True),
            )
        ]

    def enter(self, module: nn.Module, args: Any) -> None:
        """Before a call: quantize all weights, unless an outer call has."""
        if module in self._running:  # a call that was interrupted (Ctrl-C) never left
            del self._running[self._running.index(module) :]
        if not self._running:
            self.restore()
            self._swap()
        self._running.append(module)

    def _swap(self) -> None:
        made: dict[Tensor, Tensor] = {}
        # First all values, then all swaps: an error leaves the model as it was.
        for site in self.sites:
            original = getattr(site.current(), _ORIGINAL, site.current())
            if original not in made:
                made[original] = site.quantized(original)
        self._replaced = [site.current() for site in self.sites]
        for site in self.sites:
            site.put(made[getattr(site.current(), _ORIGINAL, site.current())])

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """After a call, also one that failed: give the weights back."""
        if self._running and self._running[-1] is module:
            self._running.pop()
        if not self._running:
            self.restore()

    def restore(self) -> None:
        """Give the weights back, if they are swapped."""
        for site, value in zip(self.sites, self._replaced, strict=False):
            site.put(value)
        self._replaced = []


def _entrances(model: nn.Module, layers: set[nn.Module]) -> Iterator[nn.Module]:
    """The modules whose call may use the weights of these layers."""
    for module in model.modules():
        if not layers.isdisjoint(module.modules()):
            yield module
