"""Tensors in a safetensors file: quantized ones as integers, with scale and zero point beside them.

A quantized tensor ``w`` becomes three entries, ``w`` (its integers, 2- and 4-bit ones packed into
bytes), ``w:scale`` and ``w:zero_point``, and an entry in the JSON text that the file's metadata
holds under ``halfstep``. Every other tensor is stored as it is, so any safetensors reader can open
the file, and this one opens anyone's.
"""

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from halfstep.errors import FileFormatError
from halfstep.formats.assemble import assemble, packed_size, spec_of
from halfstep.formats.stored import StoredTensor, TensorFile
from halfstep.spec import QSpec

METADATA_KEY: Final = "halfstep"
FORMAT_VERSION: Final = 1
SCALE_SUFFIX: Final = ":scale"
ZERO_POINT_SUFFIX: Final = ":zero_point"
STANDS_FOR: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}

_HEADER_LENGTH_BYTES: Final = 8
_Handle: TypeAlias = Any  # safetensors has no public name for the type of an open file


def is_safe_file(head: bytes, size: int) -> bool:
    """Whether a file of ``size`` bytes that starts with ``head`` may be a safetensors file."""
    length = int.from_bytes(head[:_HEADER_LENGTH_BYTES], "little")
    return head[_HEADER_LENGTH_BYTES:][:1] == b"{" and length + _HEADER_LENGTH_BYTES <= size


def open_safe_file(path: Path) -> TensorFile:
    """The tensors of a safetensors file, mapped into memory and read when asked for.

    Raises ``FileFormatError`` for a file that is truncated, corrupt, or of a newer Halfstep.
    """
    try:
        handle: _Handle = safe_open(str(path), framework="pt")
        names = dict.fromkeys(handle.keys())  # asked for once: safetensors sorts them each time
        metadata = handle.metadata() or {}
        quantized, order = _described(metadata.get(METADATA_KEY))
        _check_companions(quantized, names)
        companions = {name + suffix for name in quantized for suffix in _SUFFIXES}
        first = [name for name in order if name in names]
        tensors = {
            name: _stored(handle, name, quantized.get(name))
            for name in dict.fromkeys([*first, *names])
            if name not in companions
        }
    except (SafetensorError, OSError) as error:
        raise FileFormatError(
            f"it is no intact safetensors file, truncated or damaged: {error}"
        ) from error
    return TensorFile(path, "safetensors", tensors, metadata=metadata)


_SUFFIXES: Final = (SCALE_SUFFIX, ZERO_POINT_SUFFIX)


def _described(text: str | None) -> tuple[dict[str, Any], list[str]]:
    """The metadata of each quantized tensor by name, and the order in which tensors were given.

    Both are empty for a file of someone else's.
    """
    if text is None:
        return {}, []
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"its metadata {METADATA_KEY!r} is not JSON: {error}") from error
    match metadata:
        case {"format": int(version)} if version > FORMAT_VERSION:
            raise FileFormatError(
                f"it has format {version}, and this Halfstep reads up to {FORMAT_VERSION}: upgrade"
            )
        case {"format": int(), "tensors": dict(tensors)}:
            order = metadata.get("order", [])
            if isinstance(order, list) and all(isinstance(name, str) for name in order):
                return tensors, order
            raise FileFormatError(f"its metadata {METADATA_KEY!r} has an 'order' that is no names")
    raise FileFormatError(f"its metadata {METADATA_KEY!r} lacks 'format' or 'tensors'")


def _check_companions(quantized: Collection[str], names: Collection[str]) -> None:
    companions = {name + suffix for name in quantized for suffix in _SUFFIXES}
    for name in quantized:
        if name not in names or name in companions:
            raise FileFormatError(f"its metadata names {name!r}, which it does not hold")
        for suffix in _SUFFIXES:
            if name + suffix not in names:
                raise FileFormatError(f"tensor {name!r} lacks its companion {name + suffix!r}")


def _stored(handle: _Handle, name: str, entry: object | None) -> StoredTensor:
    view = handle.get_slice(name)
    shape = tuple(view.get_shape())
    if entry is not None:
        return _stored_quantized(handle, name, entry, shape)
    kind = view.get_dtype()
    if kind not in DTYPES:
        raise FileFormatError(f"tensor {name!r} has the dtype {kind}, which this torch has not")
    nbytes = math.prod(shape) * DTYPES[kind].itemsize
    return StoredTensor(shape, DTYPES[kind], None, nbytes, lambda: _get(handle, name))


DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}
SAVED_DTYPES: Final = frozenset(DTYPES.values())


def _get(handle: _Handle, name: str) -> Tensor:
    try:
        tensor: Tensor = handle.get_tensor(name)
    except SafetensorError as error:
        raise FileFormatError(f"its data cannot be read: {error}") from error
    return tensor


def _stored_quantized(
    handle: _Handle, name: str, entry: object, stored_shape: tuple[int, ...]
) -> StoredTensor:
    spec, shape, dtype = _read_entry(name, entry)
    expected = (packed_size(shape, spec.dtype.bits),) if spec.dtype.is_packed else shape
    if stored_shape != expected:
        raise FileFormatError(
            f"tensor {name!r}: {spec.dtype} of shape {shape} is stored as {expected}, "
            f"and the file has {stored_shape}"
        )

    def load() -> Tensor:
        codes, scale, zero_point = (_get(handle, name + suffix) for suffix in ("", *_SUFFIXES))
        if codes.dtype != (torch.uint8 if spec.dtype.is_packed else spec.dtype.storage):
            raise FileFormatError(f"its integers are {codes.dtype}, and its format is {spec.dtype}")
        packed_shape = shape if spec.dtype.is_packed else None
        return assemble(codes, spec, (scale, zero_point), dtype=dtype, shape=packed_shape)

    scales = math.prod(handle.get_slice(name + SCALE_SUFFIX).get_shape())
    code_bytes = math.prod(stored_shape) * spec.dtype.storage.itemsize
    return StoredTensor(shape, dtype, spec, code_bytes + 8 * scales, load)


def _read_entry(name: str, entry: object) -> tuple[QSpec, tuple[int, ...], torch.dtype]:
    match entry:
        case {"spec": dict(spec), "shape": list(shape), "stands_for": str(dtype)} if (
            all(isinstance(size, int) and 0 <= size < 1 << 48 for size in shape)
            and dtype in STANDS_FOR
        ):
            return spec_of(spec), tuple(shape), STANDS_FOR[dtype]
    raise FileFormatError(
        f"tensor {name!r}: its metadata needs 'spec', 'shape' and 'stands_for' (one of "
        f"{', '.join(STANDS_FOR)}), and is {str(entry)[:200]}"
    )
