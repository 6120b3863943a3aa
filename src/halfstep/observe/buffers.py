"""A module whose tensors take their size from the data, and from a state that is loaded."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class SizedBuffers(nn.Module):
    """A module of which a state loads whatever the sizes of its tensors are now.

    Its tensors move between devices and keep their dtype: ranges and scales are float32 in a model
    that is converted to half or double too.
    """

    def resize(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Give a buffer or a parameter another size and return it; equally many values are kept.

        It stays the same object, so that optimizers and other holders see it.
        """
        tensor: Tensor = getattr(self, name)
        if isinstance(tensor, nn.Parameter):
            # resize_ refuses what requires a gradient.
            tensor.data = tensor.data.new_empty(shape)
        elif torch.compiler.is_compiling():
            # A graph cannot resize its inputs, but it can put another tensor in their place.
            same = tensor.numel() == math.prod(shape)
            setattr(self, name, tensor.reshape(shape) if same else tensor.new_empty(shape))
        else:
            tensor.resize_(shape)
        resized: Tensor = getattr(self, name)
        return resized

    def accepts(self, name: str, value: Tensor) -> bool:
        """Whether a tensor of another size may be loaded as ``name``."""
        return True

    def _apply(self, fn: Callable[[Tensor], Tensor], *rest: Any, **options: Any) -> Any:
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, *rest, **options)  # type: ignore[no-untyped-call]  # torch's

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        own = {**self._buffers, **self._parameters}
        for name, tensor in own.items():
            value = state_dict.get(prefix + name)
            if tensor is None or not isinstance(value, Tensor) or value.shape == tensor.shape:
                continue
            if self.accepts(name, value):
                self.resize(name, tuple(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)
