"""A file that appears whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file to write and read, which takes the place of ``path`` when all went well.

    It lies beside its final place under a temporary name until it is on the disk; an old file stays
    as it is until then, and permissions and a symbolic link stay.

    Raises ``OSError`` when the disk refuses, ``FileNotFoundError`` for a missing folder.
    """
    target = path.resolve()  # through a symbolic link, which stays
    name = _new_file_beside(target)
    try:
        with Path(name).open("w+b") as file:
            yield file
        Path(name).chmod(_mode_of(target))
        _sync(name)
        Path(name).replace(target)
        _sync(target.parent)
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
