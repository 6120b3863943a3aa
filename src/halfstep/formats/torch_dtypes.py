"""The names that torch's files use for storages, and what their elements are.

Quantized dtypes are looked up here and never in torch, which is about to forget them.
"""

from dataclasses import dataclass
from typing import Final

import torch

from halfstep.errors import FileFormatError
from halfstep.formats.pickle_records import Global, Persistent, Record
from halfstep.spec import QDType, int8, int32, uint2, uint4, uint8

QUANTIZED: Final[dict[str, QDType]] = {
    "qint8": int8,
    "quint8": uint8,
    "qint32": int32,
    "quint4x2": uint4,
    "quint2x4": uint2,
}

_PLAIN: Final = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "UntypedStorage": torch.uint8,
}
_QUANTIZED_STORAGES: Final = {
    "QInt8Storage": int8,
    "QUInt8Storage": uint8,
    "QInt32Storage": int32,
    "QUInt4x2Storage": uint4,
    "QUInt2x4Storage": uint2,
}


@dataclass(frozen=True, slots=True)
class StorageReference:
    """What a pickle says of a storage: its key, its elements, and the part of it that is meant."""

    key: str
    dtype: torch.dtype  # of one stored element: a byte where 2- or 4-bit codes are packed
    qdtype: QDType | None
    offset: int = 0
    numel: int = 0

    @classmethod
    def parse(cls, reference: Record) -> "StorageReference":
        """The reference read from a pickle's persistent id.

        Raises ``FileFormatError`` for an id that torch does not write.
        """
        fields = reference.key if isinstance(reference, Persistent) else None
        match fields:
            case ("storage", Global() as kind, str(key), str(), int(numel)):
                offset = 0
            case ("storage", Global() as kind, str(key), str(), int(numel), None):
                offset = 0
            case (
                "storage",
                Global() as kind,
                str(key),
                str(),
                int(),
                (str(), int(offset), int(numel)),
            ):
                pass  # in old files a storage could be a part of another
            case _:
                raise FileFormatError("corrupt: a tensor refers to its storage in an unknown way")
        if numel < 0 or offset < 0:
            raise FileFormatError(f"corrupt: storage {key!r} has a negative size or offset")
        qdtype = _QUANTIZED_STORAGES.get(kind.name)
        dtype = _PLAIN.get(kind.name) if qdtype is None else qdtype.storage
        if dtype is None:
            raise FileFormatError(f"storage {key!r} has the unknown type {kind.path!r}")
        return cls(key, dtype, qdtype, offset, numel)


def dtype_named(record: Record) -> torch.dtype | None:
    """The torch dtype that a pickle names, such as ``torch.uint16``; None for any other record."""
    if not isinstance(record, Global) or record.module != "torch":
        return None
    found = getattr(torch, record.name, None) if record.name in _DTYPE_NAMES else None
    return found if isinstance(found, torch.dtype) else None


_DTYPE_NAMES: Final = frozenset(
    ["bool", "bfloat16", "complex64", "complex128"]
    + [f"float{bits}" for bits in (16, 32, 64)]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
