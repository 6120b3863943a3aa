"""Opening a file of tensors by what it contains, whatever its name ends with."""

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from torch import Tensor, nn

from halfstep.errors import FileFormatError, HalfstepWarning, MissingFileError
from halfstep.formats.export_archive import is_export_archive, open_export_archive
from halfstep.formats.model_file import ModelFile, model_in, read_safe_file
from halfstep.formats.onnx_file import is_onnx, open_onnx
from halfstep.formats.places import as_path, located
from halfstep.formats.safe_file import is_safe_file
from halfstep.formats.stored import StoredTensor, TensorFile
from halfstep.formats.torch_checkpoint import is_checkpoint, open_checkpoint
from halfstep.graph.engine import Engine

ALLOWED: Final = (
    "a file of hs.save, a safetensors file, a checkpoint of torch.save (.pt, .pth), a program of "
    "torch.export (.pt2), or an ONNX model"
)
_HEAD_BYTES: Final = 512
_SAFE_START: Final = slice(8, 10)
_NPY_MAGIC: Final = b"\x93NUMPY"
_TAR_MAGIC: Final = slice(257, 262)


def open_file(path: str | os.PathLike[str]) -> TensorFile:
    """The tensors of a file, described but not read: of any of the kinds that are ``ALLOWED``.

    Raises ``FileFormatError``, with the path, for anything else, and ``MissingFileError`` where
    there is no file; nothing in the file is executed.

    >>> try:
    ...     open_file("no-such-file.pt")
    ... except FileNotFoundError as error:
    ...     print(str(error).split(":")[1])
     there is no such file
    """
    place = as_path(path)
    opened = located(place, "", lambda: _reader_of(place)(place))
    placed: dict[int, StoredTensor] = {}  # tied tensors stay one
    for name, stored in opened.tensors.items():
        placed.setdefault(id(stored), _with_location(place, name, stored))
    return replace(opened, tensors={k: placed[id(v)] for k, v in opened.tensors.items()})


def load_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Every tensor of a file by name: plain tensors, and ``QTensor`` for quantized ones.

    Reads safetensors files (Halfstep's and anyone's) and checkpoints of ``torch.save``, also those
    with torch's own old quantized tensors and modules, told apart by content. Nothing in the file
    is executed. The file is mapped into memory: plain tensors are views of it, their pages read
    when touched, and writing to them changes no file.

    Warns (``HalfstepWarning``) of tensors of a kind that is not read, such as sparse ones; values
    that are no tensors are left out. Raises ``FileFormatError`` for a file that is truncated,
    corrupt, hostile, or of another kind, ``MissingFileError`` (also a ``FileNotFoundError``) where
    there is none, ``ArgumentTypeError`` for a path that is none.

    >>> import halfstep as hs, tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"layer": {"weight": torch.ones(2)}, "epoch": 3}, f"{folder}/model.pt")
    ...     hs.load_tensors(f"{folder}/model.pt")
    {'layer.weight': tensor([1., 1.])}
    """
    opened = open_file(path)
    for name, reason in opened.unreadable.items():
        warnings.warn(
            f"{path}: tensor {name!r} is left out: {reason}", HalfstepWarning, stacklevel=2
        )
    read: dict[int, Tensor] = {}
    for stored in opened.tensors.values():
        if id(stored) not in read:
            read[id(stored)] = stored.load()
    return {name: read[id(stored)] for name, stored in opened.tensors.items()}


def open_model(path: str | os.PathLike[str]) -> ModelFile:
    """A ``.halfstep`` file: what it says of itself, checked; ``build`` makes the model.

    Raises ``FileFormatError``, with the path, for a file that is truncated, corrupt, from a newer
    Halfstep or no model, and ``MissingFileError`` where there is none; nothing is executed.
    """
    opened = open_file(path)
    return located(opened.path, "", lambda: model_in(opened))


def load_model(
    path: str | os.PathLike[str],
    model: nn.Module | None = None,
    *,
    engine: Engine | None = None,
) -> nn.Module:
    """The model of a ``.halfstep`` file, as an ``nn.Module``.

    Without ``model`` it is rebuilt from the file alone: the same names of modules, parameters and
    buffers, the same arguments, and no code of its class. With ``model``, the float model, it is a
    copy of that one, of its class and with its methods. ``engine`` runs the calibrated programs.

    Raises as ``open_model`` and ``ModelFile.build``.

    >>> try:
    ...     load_model("no-such-file.halfstep")
    ... except FileNotFoundError as error:
    ...     print(str(error).split(": give")[0])
    no-such-file.halfstep: there is no such file
    """
    found = open_model(path)
    return located(as_path(path), "", lambda: found.build(model, engine=engine))


def _reader_of(path: Path) -> Callable[[Path], TensorFile]:
    if not path.exists():
        raise MissingFileError(f"there is no such file: give {ALLOWED}")
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise FileFormatError(f"it is {kind}: give {ALLOWED}")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise FileFormatError(f"it is empty: give {ALLOWED}")
    if is_checkpoint(head):
        return open_export_archive if is_export_archive(path) else open_checkpoint
    if is_safe_file(head, size):
        return read_safe_file
    if is_onnx(head):
        return open_onnx
    if head[_TAR_MAGIC] == b"ustar":
        raise FileFormatError(
            "it is a tar archive, as the first versions of torch wrote: save it again"
        )
    if head.startswith(_NPY_MAGIC):
        raise FileFormatError(f"it is a NumPy array: load it with numpy.load, or give {ALLOWED}")
    if is_safe_file(head, sys.maxsize) and head[_SAFE_START] == b'{"':
        raise FileFormatError(
            f"truncated: it starts as a .halfstep or .safetensors file, and the {size} bytes end "
            "inside its header: copy or save it again"
        )
    raise FileFormatError(f"it is no file of tensors: give {ALLOWED}")


def _with_location(path: Path, name: str, stored: StoredTensor) -> StoredTensor:
    return replace(stored, load=lambda: located(path, f"tensor {name[:200]!r}: ", stored.load))
