"""Checkpoints of ``torch.save``, read without executing anything from them.

container (``torch_archive``) -> records of its pickle -> names (``torch_names``) and tensors
(``torch_tensors``): nothing in this chain imports or calls what a file names.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from halfstep.errors import FileFormatError
from halfstep.formats.pickle_records import Call, Number, Record
from halfstep.formats.stored import StoredTensor, TensorFile
from halfstep.formats.torch_archive import ZIP_MAGIC, Archive, open_legacy, open_zip
from halfstep.formats.torch_names import name_leaves
from halfstep.formats.torch_tensors import read_number, read_tensor
from halfstep.formats.torch_views import UnreadableTensorError

PICKLE_MAGICS: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
MAX_SHOWN: Final = 200  # characters of a name in an error


@dataclass(frozen=True, slots=True)
class _Unreadable:
    reason: str


@dataclass(frozen=True, slots=True)
class _Corrupt:
    reason: str


_Leaf: TypeAlias = StoredTensor | _Unreadable | _Corrupt


def is_checkpoint(head: bytes) -> bool:
    """Whether a file that starts with these bytes may be a checkpoint of ``torch.save``."""
    return head.startswith((ZIP_MAGIC, *PICKLE_MAGICS))


def open_checkpoint(path: Path) -> TensorFile:
    """The tensors of a ``.pt`` or ``.pth`` file, of either container.

    Raises ``FileFormatError`` for a file that is truncated, corrupt, hostile or no checkpoint.
    """
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    archive = open_zip(path) if is_zip else open_legacy(path)
    leaves, others = name_leaves(archive.root, _Reader(archive).read)
    for name, leaf in leaves.items():
        if isinstance(leaf, _Corrupt):
            raise FileFormatError(f"tensor {name[:MAX_SHOWN]!r}: {leaf.reason}")
    return TensorFile(
        path,
        archive.kind,
        {name: leaf for name, leaf in leaves.items() if isinstance(leaf, StoredTensor)},
        {name: leaf.reason for name, leaf in leaves.items() if isinstance(leaf, _Unreadable)},
        others,
    )


class _Reader:
    """Says what a record is, once per record, so that tied tensors stay one tensor."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._known: dict[int, _Leaf | None] = {}

    def read(self, record: Record) -> _Leaf | None:
        if isinstance(record, Number):
            return read_number(record)
        if not isinstance(record, Call):
            return None
        if id(record) not in self._known:
            self._known[id(record)] = self._read_call(record)
        return self._known[id(record)]

    def _read_call(self, record: Call) -> _Leaf | None:
        try:
            return read_tensor(record, self._archive)
        except UnreadableTensorError as reason:
            return _Unreadable(str(reason))
        except FileFormatError as error:
            return _Corrupt(str(error))
        except RecursionError:
            return _Corrupt("it is wrapped too deeply")
