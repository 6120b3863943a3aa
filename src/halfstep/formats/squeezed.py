"""Long texts of a file's header, compressed."""

import base64
import binascii
import zlib
from typing import Final

from halfstep.errors import FileFormatError

_MARK: Final = "zlib:"
# Shorter ones stay readable in any viewer.
_LONG: Final = 1 << 16
_MOST: Final = 1 << 28


def squeezed(text: str) -> str:
    """The text; from 64 kB upwards "zlib:" and the base64 of its zlib stream.

    >>> squeezed("short"), len(squeezed("long " * 100_000)) < 2_000
    ('short', True)
    """
    if len(text) < _LONG:
        return text
    return _MARK + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unsqueezed(text: str) -> str:
    """The text that ``squeezed`` was given.

    Raises ``FileFormatError`` for what is no such stream, and for one of more than 256 MB.

    >>> unsqueezed(squeezed("long " * 100_000)) == "long " * 100_000
    True
    """
    if not text.startswith(_MARK):
        return text
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(base64.b64decode(text[len(_MARK) :], validate=True), _MOST)
        whole = stream.eof and not stream.unconsumed_tail
        read = found.decode() if whole else ""
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"corrupt: what it says of its model is unreadable: {error}"
        ) from None
    if not whole:
        raise FileFormatError("corrupt: what it says of its model is cut off, or beyond 256 MB")
    return read
