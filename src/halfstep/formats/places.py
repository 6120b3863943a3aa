"""The path of a file, from what the caller gave for it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from halfstep.errors import ArgumentError, ArgumentTypeError, FileFormatError

Result = TypeVar("Result")


def as_path(path: object) -> Path:
    """The path; ``ArgumentTypeError`` for what is none, ``ArgumentError`` where no file can be.

    >>> as_path("model.pt").name
    'model.pt'
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentTypeError(
            f"path is a {type(path).__name__}: give the name of a file, as text or a Path"
        )
    try:
        place = Path(path)
        is_possible = b"\0" not in os.fsencode(place)
    except TypeError as error:  # a PathLike of bytes
        raise ArgumentTypeError(f"path is {path!r}, which is no text: {error}") from error
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise ArgumentError(f"path is {str(path)!r}: no file has such a name, so give another")
    return place


def located(path: Path, what: str, action: Callable[[], Result]) -> Result:
    """Runs ``action`` and puts the path before the text of what it raises."""
    try:
        return action()
    except FileFormatError as error:
        if str(error).startswith(f"{path}: "):  # of a tensor in it, which says so itself
            raise
        raise type(error)(f"{path}: {what}{error}") from error
    except OSError as error:
        raise FileFormatError(f"{path}: it cannot be read: {error.strerror or error}") from error
