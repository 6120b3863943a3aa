"""A cursor over bytes that never reads past the end and never allocates what a file asks for."""

from mmap import mmap
from typing import Final

from halfstep.errors import FileFormatError

MAX_LINE: Final = 4096


class ByteReader:
    """A cursor over bytes or a mapped file, little-endian.

    Raises ``FileFormatError`` where the bytes end too early.

    >>> reader = ByteReader(bytes([1, 2, 0, 10]))
    >>> reader.unsigned(1), reader.unsigned(2), reader.position
    (1, 2, 3)
    """

    def __init__(self, data: bytes | mmap, position: int = 0) -> None:
        self._data = data
        self.position = position

    def skip(self, count: int) -> None:
        """Moves the cursor over ``count`` bytes that must be there."""
        left = len(self._data) - self.position
        if not 0 <= count <= left or self.position < 0:
            raise FileFormatError(
                f"truncated: {count} bytes are announced at byte {self.position}, {left} are left"
            )
        self.position += count

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        start = self.position
        self.skip(count)
        return self._data[start : self.position]

    def unsigned(self, width: int) -> int:
        """The next ``width`` bytes as an unsigned integer."""
        return int.from_bytes(self.take(width), "little")

    def line(self) -> bytes:
        """The bytes up to the next newline, which is passed over."""
        end = self._data.find(b"\n", self.position, self.position + MAX_LINE)
        if end < 0:
            raise FileFormatError(
                f"truncated: a line starts at byte {self.position} and has no end "
                f"within {MAX_LINE} bytes"
            )
        line = self.take(end - self.position)
        self.skip(1)
        return line
