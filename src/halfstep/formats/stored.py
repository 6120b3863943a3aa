"""What every reader returns: the tensors of a file, described now and read when asked for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from halfstep.spec import QSpec


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file.

    shape, dtype: of the tensor; a quantized one has the float dtype that it stands for.
    spec: the format of a quantized tensor, None for a plain one.
    nbytes: the bytes that it takes in the file, scales and zero points included.
    load: reads it, as a plain tensor or a ``QTensor``; ``FileFormatError`` where its data is bad.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    spec: QSpec | None
    nbytes: int
    load: Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class TensorFile:
    """An open file of tensors.

    kind: what the file is, in words.
    tensors: by name, in file order.
    unreadable: by name, tensors that are there and cannot be read, with the reason.
    others: the names of values that are no tensors, such as ``epoch``.
    about: lines that say what the file holds besides, for people.
    metadata: the texts that a safetensors file carries.
    """

    path: Path
    kind: str
    tensors: Mapping[str, StoredTensor]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
