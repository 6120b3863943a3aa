"""Simulated weights: while a model runs, its layers find the quantized values of their weights.

From the moment that the model, or any module on the way to a simulated layer, is called until that
call ends, whatever happens, reading a simulated parameter gives its quantized value. It is computed
where it is read: so also weights that a layer's parent uses itself (attention's output projection)
are simulated, and a call that activation checkpointing repeats does the same work again. Outside of
a call the model is as it was, and ``parameters()`` yields the originals at all times.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from halfstep.errors import ArgumentError


def weight_names(module: nn.Module) -> list[str]:
    """The parameters of a module itself that are weights: floats of two or more dimensions.

    Raises ``ArgumentError`` where the weight is computed from other parameters.
    """
    _refuse_computed(module)
    return [
        name
        for name, value in module._parameters.items()
        if value is not None and value.is_floating_point() and value.ndim > 1 and "bias" not in name
    ]


def _refuse_computed(module: nn.Module) -> None:
    """Weight and spectral normalization, of either kind, and other parametrizations."""
    # The older kind keeps (weight_g, weight_v) or weight_orig, and a hook that makes the weight.
    hooks = {type(hook).__name__ for hook in module._forward_pre_hooks.values()}
    if parametrize.is_parametrized(module) or hooks & {"WeightNorm", "SpectralNorm"}:
        raise ArgumentError(
            f"the weight of {type(module).__name__} is computed from other parameters, and those "
            "are not what is used: remove the parametrization first (remove_parametrizations, "
            "remove_weight_norm or remove_spectral_norm of torch.nn.utils)"
        )


class WeightSite:
    """One parameter of one layer, and what stands for its format."""

    def __init__(self, module: nn.Module, name: str, quantizer: Callable[[Tensor], Tensor]) -> None:
        self.module, self.name, self.quantizer = module, name, quantizer

    @property
    def original(self) -> Tensor:
        """The parameter itself, whatever reading it gives at the moment."""
        parameters: dict[str, Any] = self.module._parameters
        value: Tensor = dict.__getitem__(parameters, self.name)
        return value


class _Quantized(dict[str, Any]):
    """The parameters of a module, of which some read as their quantized values."""

    def __init__(self, original: dict[str, Any], read: dict[str, Callable[[], Tensor]]) -> None:
        super().__init__(original)
        self._read = read

    def __getitem__(self, name: str) -> Any:
        """The quantized value of a simulated parameter; any other as it is."""
        return self._read[name]() if name in self._read else super().__getitem__(name)


class WeightSwap:
    """The simulated weights of one recipe; tied weights are quantized once for a call."""

    def __init__(self, model: nn.Module, sites: list[WeightSite]) -> None:
        self._sites: dict[nn.Module, list[WeightSite]] = {}
        for site in sites:
            self._sites.setdefault(site.module, []).append(site)
        self._tied: set[Tensor] = set()
        self._entrances = list(_entrances(model, set(self._sites)))
        self._running: list[nn.Module] = []
        self._values: dict[Tensor, Tensor] = {}
        self._before: list[tuple[nn.Module, str, Any]] = []

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
        """Before a call: let the weights read as quantized; a layer computes its own anew."""
        if module in self._running:  # a call that was interrupted (Ctrl-C) never left
            del self._running[self._running.index(module) :]
        if not self._running:
            self.restore()
            self._swap()
        self._running.append(module)
        for site in self._sites.get(module, []):
            if site.original not in self._tied:
                self._values.pop(site.original, None)
        if isinstance(module, nn.RNNBase) and module in self._sites:
            self._put(
                module, "_flat_weights", [getattr(module, n) for n in module._flat_weights_names]
            )

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        """After a call, also one that failed: give the weights back."""
        if self._running and self._running[-1] is module:
            self._running.pop()
        if not self._running:
            self.restore()

    def restore(self) -> None:
        """Let the weights read as they are, if they are swapped."""
        for module, attribute, value in reversed(self._before):
            vars(module)[attribute] = value
        self._before, self._values, self._tied = [], {}, set()

    def _swap(self) -> None:
        uses = Counter(site.original for sites in self._sites.values() for site in sites)
        self._tied = {original for original, count in uses.items() if count > 1}
        for module, sites in self._sites.items():
            read = {site.name: self._reader(site) for site in sites}
            self._put(module, "_parameters", _Quantized(module._parameters, read))

    def _put(self, module: nn.Module, attribute: str, value: Any) -> None:
        self._before.append((module, attribute, vars(module)[attribute]))
        vars(module)[attribute] = value

    def _reader(self, site: WeightSite) -> Callable[[], Tensor]:
        original = site.original

        def read() -> Tensor:
            if original not in self._values:
                self._values[original] = site.quantizer(original)
            return self._values[original]

        return read


def _entrances(model: nn.Module, layers: set[nn.Module]) -> Iterator[nn.Module]:
    """The modules whose call may use the weights of these layers."""
    for module in model.modules():
        if not layers.isdisjoint(module.modules()):
            yield module
