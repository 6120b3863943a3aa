"""A checksum inside a safetensors file, over every byte of it."""

import hashlib
import mmap
import re
from pathlib import Path
from typing import BinaryIO, Final

from halfstep.errors import FileFormatError

SEAL_KEY: Final = "halfstep-sha256"
BLANK: Final = "0" * 64  # the checksum's own place counts as zeros
_FIELD: Final = re.compile(rb'"halfstep-sha256":"([0-9a-f]{64})"')
_LENGTH_BYTES: Final = 8


def seal(file: BinaryIO) -> None:
    """Put the checksum of a file, written with ``BLANK`` under ``SEAL_KEY``, into its place."""
    file.flush()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start, end = _place(data)
        digest = _digest(data, start, end)
    file.seek(start)
    file.write(digest.encode())


def check_seal(path: Path) -> None:
    """Nothing, for a file whose every byte is as it was written.

    Raises ``FileFormatError`` for any other.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start, end = _place(data)
        if data[start:end] != _digest(data, start, end).encode():
            raise FileFormatError(
                "corrupt: its bytes are not those that were written (the checksum differs): copy "
                "or save it again"
            )


def _place(data: mmap.mmap) -> tuple[int, int]:
    """The bytes of the checksum in the header, where it stands once."""
    header = data[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")]
    found = list(_FIELD.finditer(header))
    if len(found) != 1:
        raise FileFormatError("corrupt: its header lacks the checksum: copy or save it again")
    start, end = found[0].span(1)
    return _LENGTH_BYTES + start, _LENGTH_BYTES + end


def _digest(data: mmap.mmap, start: int, end: int) -> str:
    digest = hashlib.sha256()
    with memoryview(data) as view:
        for part in (view[:start], BLANK.encode(), view[end:]):
            digest.update(part)
            if isinstance(part, memoryview):
                part.release()
    return digest.hexdigest()
