"""Writing tensors, quantized and plain, into one safetensors file that is whole or not there."""

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.formats.places import as_path
from halfstep.formats.safe_file import (
    FORMAT_VERSION,
    METADATA_KEY,
    SAVED_DTYPES,
    SCALE_SUFFIX,
    ZERO_POINT_SUFFIX,
)
from halfstep.numerics.ops import pack
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
    entries: dict[str, Tensor] = {}
    described: dict[str, Any] = {}
    for name, tensor in tensors.items():
        _check(name, tensor)
        parts = {name: tensor}
        if isinstance(tensor, QTensor):
            parts, described[name] = _quantized_parts(name, tensor)
        _add(entries, parts)
    header = _header(list(tensors), described)
    _write_atomically(_separate(entries), header, place)


def _header(names: list[str], described: dict[str, Any]) -> dict[str, str] | None:
    """The metadata: the formats, and the order of the names where it is not the alphabet's."""
    metadata: dict[str, Any] = {"format": FORMAT_VERSION, "tensors": described}
    if names != sorted(names):
        metadata["order"] = names
    if not described and "order" not in metadata:
        return None
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


def _quantized_parts(name: str, q: QTensor) -> tuple[dict[str, Tensor], dict[str, Any]]:
    codes = q.int_repr()
    if q.spec.dtype.is_packed:
        codes = pack(codes, q.spec.dtype.bits)
    parts = {name: codes, name + SCALE_SUFFIX: q.scale, name + ZERO_POINT_SUFFIX: q.zero_point}
    stands_for = str(q.dtype).removeprefix("torch.")
    return parts, {
        "spec": q.spec.to_dict(),
        "shape": list(q.shape),
        "stands_for": stands_for,
    }


def _add(entries: dict[str, Tensor], parts: dict[str, Tensor]) -> None:
    taken = entries.keys() & parts.keys()
    if taken:
        raise ArgumentError(
            f"the name {min(taken)!r} is needed twice: a quantized tensor 'w' also takes "
            f"'w{SCALE_SUFFIX}' and 'w{ZERO_POINT_SUFFIX}', so rename the other tensor"
        )
    entries.update(parts)


def _separate(entries: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU that share no memory, as the format wants them."""
    seen: set[int] = set()
    result = {}
    for name, tensor in entries.items():
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        result[name] = plain.clone() if place in seen else plain
        seen.add(place)
    return result


def _write_atomically(
    tensors: dict[str, Tensor], metadata: dict[str, str] | None, path: Path
) -> None:
    target = path.resolve()  # through a symbolic link, which stays
    name = _new_file_beside(target)
    try:
        save_file(tensors, name, metadata)
        Path(name).chmod(_mode_of(target))
        _sync(name)
        Path(name).replace(target)
        _sync(target.parent)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def _new_file_beside(target: Path) -> str:
    """The name of an empty temporary file; what goes wrong is told of the folder, not of it."""
    folder = target.parent
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder: create it", str(folder))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder: name a file", str(target))
    try:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        why = f"no file can be made in this folder: {error.strerror}"
        raise OSError(error.errno, why, str(folder)) from error
    os.close(descriptor)
    return name


def _mode_of(target: Path) -> int:
    """The permissions of the file to be replaced, or those that a new file gets here."""
    if target.exists():
        return target.stat().st_mode & 0o777
    probe = target.with_name(f".{target.name}.{os.getpid()}.mode")
    probe.touch()
    try:
        return probe.stat().st_mode & 0o777
    finally:
        probe.unlink()


def _sync(path: str | Path) -> None:
    """Waits until the file or folder is on the disk."""
    if os.name == "nt" and Path(path).is_dir():
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
