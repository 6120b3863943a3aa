"""A tensor as the command shows it: what the file says of it, and what its numbers say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from halfstep.formats import StoredTensor
from halfstep.formats.histogram import Bin, histogram
from halfstep.formats.summary import PlainSummary, QuantizedSummary, summarize
from halfstep.spec import Granularity, PerChannel, PerGroup, PerToken
from halfstep.tensor import QTensor

_FLOAT32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor to print; its data stays in the mapped file and is read again for details."""

    name: str
    stored: StoredTensor
    summary: PlainSummary | QuantizedSummary

    @property
    def format(self) -> str:
        """The float or integer dtype in words, such as ``int8`` or ``bfloat16``."""
        return str(self.stored.spec.dtype) if self.stored.spec else self.stands_for

    @property
    def stands_for(self) -> str:
        """The dtype of its values in words; of a quantized tensor, the one that it stands for."""
        return str(self.stored.dtype).removeprefix("torch.")

    @property
    def float32_bytes(self) -> int:
        """The bytes that the same tensor takes in float32."""
        return _FLOAT32_BYTES * torch.Size(self.stored.shape).numel()

    def bins(self, count: int) -> list[Bin]:
        """The histogram of its values or codes."""
        return histogram(self.stored.load(), self.summary, count)

    def corner(self, rows: int, columns: int) -> Tensor:
        """The first integers (or values), as a matrix of axis 0 against all others."""
        tensor = self.stored.load()
        plain = tensor.ints if isinstance(tensor, QTensor) else tensor
        if plain.ndim < 2 or plain.numel() == 0:
            return plain.reshape(1, -1)[:, :columns]
        return plain[:rows].reshape(min(rows, plain.shape[0]), -1)[:, :columns]

    def qparams(self) -> tuple[Tensor, Tensor] | None:
        """``(scale, zero_point)``; None for a plain tensor."""
        tensor = self.stored.load()
        return tensor.qparams() if isinstance(tensor, QTensor) else None


def view_of(name: str, stored: StoredTensor, progress: Callable[[int], None]) -> TensorView:
    """The view of a stored tensor, after one pass over its data."""
    return TensorView(name, stored, summarize(stored.load(), progress))


def granularity_in_words(granularity: Granularity) -> str:
    """Which elements share a scale, for people.

    >>> granularity_in_words(PerGroup(1, 32))
    'per group of 32, axis 1'
    """
    match granularity:
        case PerChannel(axis):
            return f"per channel, axis {axis}"
        case PerGroup(axis, size):
            return f"per group of {size}, axis {axis}"
        case PerToken():
            return "per token"
        case _:
            return "per tensor"
