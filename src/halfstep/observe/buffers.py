"""A module whose tensors take their size from the data, and from a state that is loaded."""

from typing import Any

from torch import Tensor, nn


def resize(tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Give a buffer or a parameter another size; a buffer keeps the values that it has room for."""
    if isinstance(tensor, nn.Parameter):
        # resize_ refuses what requires a gradient.
        tensor.data = tensor.data.new_empty(shape)
    else:
        tensor.resize_(shape)


class SizedBuffers(nn.Module):
    """A module of which a state loads whatever the sizes of its tensors are now.

    Tensors are resized in place, so that optimizers and other holders see them.
    """

    def _accepts(self, name: str, value: Tensor) -> bool:
        """Whether a tensor of another size may be loaded as ``name``."""
        return True

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        own = {**self._buffers, **self._parameters}
        for name, tensor in own.items():
            value = state_dict.get(prefix + name)
            if tensor is None or not isinstance(value, Tensor) or value.shape == tensor.shape:
                continue
            if self._accepts(name, value):
                resize(tensor, tuple(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)
