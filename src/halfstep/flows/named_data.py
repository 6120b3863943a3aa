"""Data that is named on a command line: a file of tensors, or an iterable of the user's code."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.flows.named_model import called, found
from halfstep.formats import load_tensors
from halfstep.formats.numpy_file import load_arrays
from halfstep.graph.product import Forward
from halfstep.graph.program import Program

ARRAYS = (".npy", ".npz")
TENSORS = (".safetensors", ".pt", ".pth")
BATCH = 16
_ALLOWED = f"a {', '.join((*ARRAYS, *TENSORS[:-1]))} file, or package.module:iterable"


def named_data(name: str, model: nn.Module, batch_size: int | None = None) -> Iterable[Any]:
    """The batches of a name.

    name: a file of tensors whose first dimension is the sample, each an argument of the model: by
        its name where all of them name one, and otherwise in their order; or
        ``package.module:iterable``, which runs the user's code and gives batches itself.
    batch_size: of a file; by default the one that the model was exported with, or 16.

    Raises ``ArgumentError`` for any other name, for code that fails, and for tensors of different
    lengths; what the readers of files raise.
    """
    suffix = Path(name).suffix
    if suffix in (*ARRAYS, *TENSORS):
        tensors = load_arrays(name) if suffix in ARRAYS else load_tensors(name)
        return Samples.of(name, tensors, model, batch_size)
    if ":" not in name:
        raise ArgumentError(f"{name!r} names no data: give {_ALLOWED}")
    value = found(name)
    value = called(name, value) if callable(value) else value
    if not isinstance(value, Iterable):
        raise ArgumentError(f"{name} gives a {type(value).__name__}: it has to give batches")
    return [value] if isinstance(value, Tensor | Mapping | tuple) else value


@dataclass(frozen=True)
class Samples(Sequence[Any]):
    """Tensors of one length, cut into batches.

    names: the arguments that they are, or None for positional ones.
    """

    tensors: tuple[Tensor, ...]
    names: tuple[str, ...] | None
    size: int

    @classmethod
    def of(
        cls, name: str, tensors: Mapping[str, Tensor], model: nn.Module, size: int | None = None
    ) -> "Samples":
        """The samples of a file.

        Raises ``ArgumentError`` where their lengths differ, and where the model takes others.
        """
        lengths = {len(tensor) if tensor.ndim else 0 for tensor in tensors.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise ArgumentError(
                f"{name} holds {_listed(tensors)}: the first dimension of each has to be the same "
                "number of samples"
            )
        names = _names(name, tensors, model)
        fixed = _fixed_size(model)
        size = size or fixed or BATCH
        if fixed is not None and size != fixed:
            raise ArgumentError(
                f"the model was exported with a fixed batch of {fixed}, not {size}: leave out the "
                "batch size, or export it with a dynamic one"
            )
        (length,) = lengths
        whole = length - length % size if fixed else length
        if not whole:
            raise ArgumentError(
                f"{name} holds {length} samples, and the model takes {fixed} at once"
            )
        return cls(tuple(_as_float32(t)[:whole] for t in tensors.values()), names, size)

    def __len__(self) -> int:
        return (len(self.tensors[0]) + self.size - 1) // self.size

    def __getitem__(self, place: Any) -> Any:
        if not 0 <= place < len(self):
            raise IndexError(place)
        begin = place * self.size
        batch = tuple(tensor[begin : begin + self.size] for tensor in self.tensors)
        return dict(zip(self.names, batch, strict=True)) if self.names else batch


def _names(name: str, tensors: Mapping[str, Tensor], model: nn.Module) -> tuple[str, ...] | None:
    """The arguments that the tensors are; None where they are positional."""
    signature = inspect.signature(model.forward)
    if signature.parameters.keys() >= tensors.keys():
        return tuple(tensors)
    try:
        signature.bind(*tensors.values())
    except TypeError:
        raise ArgumentError(
            f"{name} holds {_listed(tensors)}, and the model takes {signature}: save the arguments "
            "alone, under their names"
        ) from None
    return None


def _listed(tensors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{key} {tuple(t.shape)}" for key, t in tensors.items()) or "no tensors"


def _fixed_size(model: nn.Module) -> int | None:
    """The only batch size that an exported program takes, if there is only one."""
    forward = vars(model).get("forward")
    programs = forward.programs if isinstance(forward, Forward) else []
    conditions = [c for each in programs if isinstance(each, Program) for c in each.conditions]
    fixed = [c.right for c in conditions if c.left == ("size", 0, 0) and c.compare == "=="]
    return fixed[0] if fixed and isinstance(fixed[0], int) else None


def _as_float32(tensor: Tensor) -> Tensor:
    """NumPy's floats are doubles, which few models take."""
    return tensor.float() if tensor.dtype == torch.float64 else tensor
