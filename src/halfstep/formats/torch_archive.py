"""The two containers of ``torch.save``: where the pickle is, and where each storage lies.

Since torch 1.6 a checkpoint is a zip archive whose entries are stored without compression, so that
each storage is a range of the file. Before, it was five pickles in a row followed by the storages.
Both become one ``Archive``: the records of the pickle, the mapped file, and a range per storage.
"""

import mmap
import struct
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import torch

from halfstep.errors import FileFormatError
from halfstep.formats.byte_reader import ByteReader
from halfstep.formats.pickle_machine import read_pickle
from halfstep.formats.pickle_records import Pairs, Persistent, Record
from halfstep.formats.torch_dtypes import StorageReference

ZIP_MAGIC: Final = b"PK\x03\x04"
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL: Final = 1001
_LOCAL_HEADER_SIZE: Final = 30


@dataclass(frozen=True, slots=True)
class Archive:
    """A checkpoint on disk: what its pickle says, and where the bytes of each storage are."""

    kind: str
    root: Record
    data: torch.UntypedStorage  # the whole file, mapped
    ranges: Mapping[str, tuple[int, int]]  # storage key -> (first byte, number of bytes)


def map_file(path: Path) -> torch.UntypedStorage:
    """The file as a storage: pages are read when touched, and writes stay in memory.

    Raises ``FileFormatError`` when the operating system cannot map it.
    """
    try:
        size = path.stat().st_size
        mapped = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=size)
    except (OSError, RuntimeError) as error:
        raise FileFormatError(f"it cannot be mapped into memory: {error}") from error
    return cast("torch.UntypedStorage", mapped)  # torch's annotation is of the base class


def open_zip(path: Path) -> Archive:
    """The archive of ``torch.save`` since torch 1.6 (and of ``torch.jit.save``).

    Raises ``FileFormatError`` for a zip that is corrupt, compressed, or no checkpoint.
    """
    try:
        with path.open("rb") as file:
            entries = zip_entries(file)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _read_zip(path, view, entries)
    except FileFormatError:
        raise
    except (zipfile.BadZipFile, ValueError, OverflowError, struct.error, RuntimeError) as error:
        raise FileFormatError(f"its zip directory is corrupt: {error}") from error


def zip_entries(file: BinaryIO) -> list[zipfile.ZipInfo]:
    """The directory of a zip archive; ``FileFormatError`` where it is missing."""
    if not zipfile.is_zipfile(file):
        raise FileFormatError(
            "truncated: it starts as a zip archive, and the directory that ends one is missing: "
            "copy or download it again, whole"
        )
    with zipfile.ZipFile(file) as archive:
        return archive.infolist()


def _read_zip(path: Path, view: mmap.mmap, entries: list[zipfile.ZipInfo]) -> Archive:
    by_name = {entry.filename: entry for entry in entries}
    pickles = [name for name in by_name if name.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1:
        raise FileFormatError(_other_zip(by_name, len(pickles)))
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}byteorder" in by_name:
        _check_byte_order(view, entry_range(by_name[f"{prefix}byteorder"], view))
    start, size = entry_range(by_name[pickles[0]], view)
    root, _ = read_pickle(ByteReader(view[start : start + size]))
    folder = f"{prefix}data/"
    storages = {
        name.removeprefix(folder): entry_range(entry, view)
        for name, entry in by_name.items()
        if name.startswith(folder)
    }
    is_script = f"{prefix}constants.pkl" in by_name
    return Archive("TorchScript" if is_script else "torch.save", root, map_file(path), storages)


def _other_zip(names: Collection[str], pickles: int) -> str:
    """What a zip archive is that is no checkpoint."""
    if names and all(name.endswith(".npy") for name in names):
        return "it is a NumPy archive (.npz), so no checkpoint: load it with numpy.load"
    count = f"{pickles} entries" if pickles else "no entry"
    return (
        f"it is a zip archive with {count} named data.pkl, so no checkpoint: torch.save writes one"
    )


def entry_range(info: zipfile.ZipInfo, view: mmap.mmap) -> tuple[int, int]:
    """The bytes of an entry: they follow its local header, whose padding may differ."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise FileFormatError(
            f"its entry {info.filename!r} is compressed, and checkpoints are stored without: "
            "unpack it and save it again with torch.save"
        )
    reader = ByteReader(view, info.header_offset)
    if reader.take(4) != ZIP_MAGIC:
        raise FileFormatError(f"its zip entry {info.filename!r} has no header where it should be")
    reader.skip(22)
    reader.skip(reader.unsigned(2) + reader.unsigned(2))
    start = reader.position
    reader.skip(info.file_size)
    return start, info.file_size


def _check_byte_order(view: mmap.mmap, place: tuple[int, int]) -> None:
    if view[place[0] : sum(place)] != b"little":
        raise FileFormatError("it holds big-endian numbers, and only little-endian ones are read")


def open_legacy(path: Path) -> Archive:
    """The file that ``torch.save`` wrote before torch 1.6, and still writes on request.

    Raises ``FileFormatError`` for anything else.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        reader = ByteReader(view)
        _check_preamble(reader)
        root, references = read_pickle(reader)
        keys, _ = read_pickle(reader)
        ranges = _legacy_ranges(reader, keys, references)
    return Archive("torch.save (legacy)", root, map_file(path), ranges)


def _check_preamble(reader: ByteReader) -> None:
    if read_pickle(reader)[0] != _LEGACY_MAGIC:
        raise FileFormatError(
            "it is a plain pickle, as pickle.dump writes it, and no file of torch.save: load it "
            "with pickle, if you trust it, and write it again with torch.save"
        )
    protocol, system = (read_pickle(reader)[0] for _ in range(2))
    if protocol != _LEGACY_PROTOCOL:
        raise FileFormatError(
            f"it has protocol {protocol!s:.20} of torch.save, unknown to Halfstep"
        )
    if isinstance(system, Pairs) and ("little_endian", False) in system.pairs:
        raise FileFormatError("it holds big-endian numbers, and only little-endian ones are read")


def _legacy_ranges(
    reader: ByteReader, keys: Record, references: list[Persistent]
) -> dict[str, tuple[int, int]]:
    """Each storage: its number of elements in 8 bytes, then the elements."""
    found = (
        StorageReference.parse(reference) for reference in references if _is_storage(reference)
    )
    by_key = {reference.key: reference for reference in found}
    ranges = {}
    for key in keys if isinstance(keys, list) else ():
        if not isinstance(key, str) or key not in by_key:
            raise FileFormatError("corrupt: it stores data under a key that no tensor uses")
        size = reader.unsigned(8) * by_key[key].dtype.itemsize
        ranges[key] = (reader.position, size)
        reader.skip(size)
    return ranges


def _is_storage(reference: Persistent) -> bool:
    """Legacy files also refer to the source code of module classes, which is passed over."""
    return isinstance(reference.key, tuple) and reference.key[:1] == ("storage",)
