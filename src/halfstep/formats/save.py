"""Writing tensors, quantized and plain, into one safetensors file that is whole or not there."""

import json
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.formats.atomic import replacing
from halfstep.formats.places import as_path
from halfstep.formats.safe_file import (
    FORMAT_VERSION,
    METADATA_KEY,
    SAVED_DTYPES,
    SCALE_SUFFIX,
    ZERO_POINT_SUFFIX,
)
from halfstep.formats.safe_writer import SafeWriter
from halfstep.numerics.ops import pack
from halfstep.spec import QSpec
from halfstep.tensor import QTensor


def save_tensors(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Write tensors, quantized ones as integers, into one safetensors file.

    A quantized ``w`` is stored as ``w`` (integers; 2- and 4-bit ones packed), ``w:scale`` and
    ``w:zero_point``; ``hs.load_tensors`` gives it back equal in every bit, and all tensors in the
    order in which they were given. The file appears whole
    or not at all: an old one stays as it is until the new one is on the disk.

    tensors: by name, on any device, in any layout; tensors that share memory are stored each.

    Raises ``ArgumentTypeError`` for a value that is no tensor or of a dtype that the format lacks,
    ``ArgumentError`` for a name that is taken, ``OSError`` when the disk refuses, such as
    ``FileNotFoundError`` for a missing folder.

    >>> import halfstep as hs, tempfile, torch
    >>> q = hs.quantize(torch.tensor([[0.5, -1.0]]), hs.int8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hs.save_tensors({"w": q, "bias": torch.zeros(2)}, f"{folder}/w.safetensors")
    ...     loaded = hs.load_tensors(f"{folder}/w.safetensors")
    >>> list(loaded), torch.equal(loaded["w"].int_repr(), q.int_repr())
    (['w', 'bias'], True)
    """
    if not isinstance(tensors, Mapping):
        raise ArgumentTypeError(
            f"tensors is a {type(tensors).__name__}: give a dict of names and tensors"
        )
    place = as_path(path)
    entries, metadata = entries_of(tensors)
    with replacing(place) as file:
        write_entries(file, entries, metadata)


def entries_of(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The plain tensors under which the given ones are stored, and the metadata that says so.

    Raises as ``save_tensors`` does.
    """
    entries: dict[str, Tensor] = {}
    described: dict[str, Any] = {}
    for name, tensor in tensors.items():
        _check(name, tensor)
        parts = {name: tensor}
        if isinstance(tensor, QTensor):
            parts = parts_of(name, tensor)
            described[name] = description(tensor.spec, tuple(tensor.shape), tensor.dtype)
        _add(entries, parts)
    return entries, metadata_of(list(tensors), described)


def write_entries(
    file: BinaryIO, entries: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write plain tensors as one safetensors file."""
    layouts = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in entries.items()}
    writer = SafeWriter(file, layouts, metadata)
    for name, tensor in entries.items():
        writer.put(name, tensor)


def metadata_of(names: list[str], described: Mapping[str, Any]) -> dict[str, str]:
    """The metadata: the formats, and the order of the names where it is not the alphabet's."""
    metadata: dict[str, Any] = {"format": FORMAT_VERSION, "tensors": described}
    if names != sorted(names):
        metadata["order"] = names
    if not described and "order" not in metadata:
        return {}
    return {METADATA_KEY: json.dumps(metadata, sort_keys=True)}


def _check(name: object, tensor: object) -> None:
    if not isinstance(name, str) or name == "__metadata__":
        raise ArgumentError(f"{name!r} cannot name a tensor: use text other than '__metadata__'")
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise ArgumentError(f"{name!r} cannot name a tensor: it holds half a character (surrogate)")
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(
            f"tensors[{name!r}] is a {type(tensor).__name__}: only tensors are saved"
        )
    if isinstance(tensor, QTensor):
        return
    if tensor.layout != torch.strided or tensor.is_meta:
        raise ArgumentTypeError(
            f"tensors[{name!r}] has no plain data ({tensor.layout} on {tensor.device}): make it "
            "dense on a real device first"
        )
    if tensor.dtype not in SAVED_DTYPES:
        allowed = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in SAVED_DTYPES))
        raise ArgumentTypeError(
            f"tensors[{name!r}] is {tensor.dtype}, which safetensors lacks: allowed are {allowed}"
        )


def parts_of(name: str, q: QTensor) -> dict[str, Tensor]:
    """The three plain tensors of a quantized one, by their names in the file."""
    codes = pack(q.ints, q.spec.dtype.bits) if q.spec.dtype.is_packed else q.ints
    return {name: codes, name + SCALE_SUFFIX: q.scale, name + ZERO_POINT_SUFFIX: q.zero_point}


def description(spec: QSpec, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    """What the metadata says of a quantized tensor."""
    stands_for = str(dtype).removeprefix("torch.")
    return {"spec": spec.to_dict(), "shape": list(shape), "stands_for": stands_for}


def _add(entries: dict[str, Tensor], parts: dict[str, Tensor]) -> None:
    taken = entries.keys() & parts.keys()
    if taken:
        raise ArgumentError(
            f"the name {min(taken)!r} is needed twice: a quantized tensor 'w' also takes "
            f"'w{SCALE_SUFFIX}' and 'w{ZERO_POINT_SUFFIX}', so rename the other tensor"
        )
    entries.update(parts)
