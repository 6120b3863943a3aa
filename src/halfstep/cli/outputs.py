"""Files that a command is going to write: checked before the work, not after it."""

from collections.abc import Iterable
from pathlib import Path

from halfstep.errors import ArgumentError


class UsageError(ArgumentError):
    """Options that make no sense, alone or together; the command ends with exit code 2."""


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[str | Path | None]) -> None:
    """Raises ``UsageError`` for a file that is also read, or named twice, or has no folder.

    >>> from pathlib import Path
    >>> try:
    ...     check_outputs([Path("a.onnx")], ["a.onnx"])
    ... except UsageError as error:
    ...     print(error)
    a.onnx is read by this command: name another file to write
    """
    read = {Path(one).resolve() for one in inputs if one is not None}
    written: set[Path] = set()
    for output in outputs:
        if output is None:
            continue
        place = output.resolve()
        if place in read:
            raise UsageError(f"{output} is read by this command: name another file to write")
        if place in written:
            raise UsageError(f"{output} would be written twice: name two files")
        if place.is_dir() or not place.parent.is_dir():
            why = "is a folder" if place.is_dir() else "is in a folder that does not exist"
            raise UsageError(f"{output} {why}: name a file in a folder that exists")
        written.add(place)
