"""Hooks on what a layer is given and what it returns."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Map = Callable[[Tensor], Tensor]


class _Hook:
    """Maps tensors by a function, or with ``watch`` only shows them to it."""

    def __init__(self, function: Map, *, watch: bool = False) -> None:
        self.function = function
        self.watch = watch

    def in_force(self, hooks: Iterable[Any]) -> bool:
        """Of the hooks that map, the last: of nested simulations the inner one wins."""
        if self.watch:
            return True
        return [hook for hook in hooks if type(hook) is type(self) and not hook.watch][-1] is self

    def mapped(self, value: Any) -> Any:
        """A float tensor, mapped; anything else as it is."""
        if not (isinstance(value, Tensor) and value.is_floating_point()):
            return value
        result = self.function(value)
        return value if self.watch else result


class InputHook(_Hook):
    """Sees the tensors that a module is called with; not those in tuples, as an LSTM's state."""

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """The arguments, mapped."""
        if not self.in_force(module._forward_pre_hooks.values()):
            return None
        by_name = {name: self.mapped(value) for name, value in kwargs.items()}
        return tuple(self.mapped(value) for value in args), by_name


class OutputHook(_Hook):
    """Sees the tensors that a module returns: one, or those of a tuple, list or dict."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The output, mapped."""
        if not self.in_force(module._forward_hooks.values()):
            return None
        if isinstance(output, dict):
            values = {name: self.mapped(value) for name, value in output.items()}
            return values if type(output) is dict else type(output)(**values)
        if isinstance(output, tuple | list):
            items = [self.mapped(value) for value in output]
            return type(output)(*items) if hasattr(output, "_fields") else type(output)(items)
        return self.mapped(output)


def on_inputs(module: nn.Module, function: Map, *, watch: bool = False) -> RemovableHandle:
    """Map, or watch, the float tensors that a module is given."""
    hook = InputHook(function, watch=watch)
    return module.register_forward_pre_hook(hook, with_kwargs=True)


def on_outputs(module: nn.Module, function: Map, *, watch: bool = False) -> RemovableHandle:
    """Map, or watch, the float tensors that a module returns."""
    return module.register_forward_hook(OutputHook(function, watch=watch))
