"""Programs of ``torch.export.save`` (``.pt2``): a zip of JSON and raw tensors, read as such.

The pickles in it (example inputs, tensors of subclasses) are left alone, and no program is built.
"""

import json
import mmap
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from halfstep.errors import FileFormatError
from halfstep.formats.export_weights import Call, quantized_weights
from halfstep.formats.stored import StoredTensor, TensorFile
from halfstep.formats.torch_archive import Archive, entry_range, map_file, zip_entries
from halfstep.formats.torch_dtypes import StorageReference
from halfstep.formats.torch_views import StridedView

_MARK: Final = "archive_format"
_FOLDERS: Final = {"weights": "data/weights/", "constants": "data/constants/"}
_CORRUPT: Final = (zipfile.BadZipFile, ValueError, OverflowError, struct.error, RuntimeError)


def is_export_archive(path: Path) -> bool:
    """Whether a zip archive is one of ``torch.export.save``."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.rpartition("/")[2] == _MARK for name in archive.namelist())
    except _CORRUPT:  # then it is no checkpoint either, and its reader says why
        return False


def open_export_archive(path: Path) -> TensorFile:
    """The parameters, buffers and constants of the programs in a ``.pt2`` file.

    Raises ``FileFormatError`` for a file that is truncated, corrupt, or of an older torch.
    """
    try:
        with path.open("rb") as file:
            entries = zip_entries(file)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                return _Reader(path, view, entries).read()
    except FileFormatError:
        raise
    except _CORRUPT as error:
        raise FileFormatError(f"it is no intact archive of torch.export: {error}") from error


class _Reader:
    """The entries of an archive, by their names below its first folder."""

    def __init__(self, path: Path, view: mmap.mmap, entries: list[zipfile.ZipInfo]) -> None:
        self.path, self.view = path, view
        mark = next(e.filename for e in entries if e.filename.rpartition("/")[2] == _MARK)
        prefix = mark.removesuffix(_MARK)
        self.ranges = {
            entry.filename.removeprefix(prefix): entry_range(entry, view) for entry in entries
        }
        self.archive = Archive("torch.export", None, map_file(path), self.ranges)

    def json(self, name: str) -> Any:
        """An entry that is JSON."""
        start, size = self.ranges[name]
        try:
            return json.loads(self.view[start : start + size])
        except ValueError as error:
            raise FileFormatError(f"its entry {name!r} is no JSON: {error}") from error

    def read(self) -> TensorFile:
        """All programs; several ones put their name before those of their tensors."""
        names = [
            n.removeprefix("models/").removesuffix(".json") for n in self.ranges if _is_model(n)
        ]
        if not names:
            raise FileFormatError(
                "it holds no program that is read: export and save it again with torch 2.9 or later"
            )
        tensors: dict[str, StoredTensor] = {}
        unreadable: dict[str, str] = {}
        about: list[str] = []
        for name in sorted(names):
            prefix = f"{name}." if len(names) > 1 else ""
            found, failed, lines = self._program(name)
            tensors |= {prefix + each: tensor for each, tensor in found.items()}
            unreadable |= {prefix + each: reason for each, reason in failed.items()}
            about += lines
        return TensorFile(self.path, self.archive.kind, tensors, unreadable, about=tuple(about))

    def _program(self, name: str) -> tuple[dict[str, StoredTensor], dict[str, str], list[str]]:
        model = self.json(f"models/{name}.json")
        calls, names = _graph(model)
        tensors: dict[str, StoredTensor] = {}
        unreadable: dict[str, str] = {}
        for kind, folder in _FOLDERS.items():
            config = f"{folder}{name}_{kind}_config.json"
            for each, payload in _config(self.json(config) if config in self.ranges else {}):
                found = self._payload(folder, payload, each)
                if isinstance(found, StoredTensor):
                    tensors[each] = found
                elif found:
                    unreadable[each] = found
        tensors, more = quantized_weights(calls, names, tensors)
        return tensors, unreadable | more, _about(name, model, calls)

    def _payload(self, folder: str, payload: Any, name: str) -> StoredTensor | str:
        match payload:
            case {"path_name": str(), "use_pickle": True, "tensor_meta": dict()}:
                return "it is a pickle of a subclass of Tensor: save its plain parts"
            case {"path_name": str(), "use_pickle": True}:
                return ""  # no tensor
            case {"path_name": str(at), "tensor_meta": dict(meta)}:
                return self._tensor(folder + at, meta, name)
        raise FileFormatError(f"tensor {name[:200]!r} is not described")

    def _tensor(self, key: str, meta: Mapping[str, Any], name: str) -> StoredTensor | str:
        dtype = _DTYPES.get(meta.get("dtype", 0))
        if dtype is None or meta.get("layout") != _STRIDED:
            return "its dtype or layout is not read"
        try:
            shape, stride = (tuple(map(_size, meta[each])) for each in ("sizes", "strides"))
            offset = _size(meta["storage_offset"])
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"tensor {name[:200]!r} lacks its shape: {error}") from error
        view = StridedView(
            self.archive, StorageReference(key, dtype, None), dtype, offset, shape, stride
        )
        try:
            view.check()
        except FileFormatError as error:
            raise FileFormatError(f"tensor {name[:200]!r}: {error}") from error
        return StoredTensor(shape, dtype, None, view.numel * view.itemsize, view.read)


def _is_model(name: str) -> bool:
    return name.startswith("models/") and name.endswith(".json")


def _config(plain: Any) -> Iterator[tuple[str, Any]]:
    config = plain.get("config", {}) if isinstance(plain, dict) else None
    if not isinstance(config, dict):
        raise FileFormatError("the list of its tensors is none")
    yield from config.items()


def _size(plain: Any) -> int:
    match plain:
        case {"as_int": int(size)}:
            return size
    raise FileFormatError(f"a size is no number: {str(plain)[:100]}")


def _graph(model: Any) -> tuple[list[Call], dict[str, str]]:
    """The calls of the graph, and the names of the tensors behind its inputs."""
    match model:
        case {
            "graph_module": {
                "graph": {"nodes": list(nodes)},
                "signature": {"input_specs": list(inputs)},
            }
        }:
            return [_call(node) for node in nodes], dict(filter(None, map(_named, inputs)))
    raise FileFormatError("its program is not one of torch.export")


def _call(node: Any) -> Call:
    match node:
        case {"target": str(target), "inputs": list(inputs)}:
            args = {
                each["name"]: each["arg"]
                for each in inputs
                if isinstance(each, dict) and isinstance(each.get("name"), str) and "arg" in each
            }
            return Call(target.removeprefix("torch.ops."), args)
    raise FileFormatError(f"a node of its program is not readable: {str(node)[:100]}")


def _named(spec: Any) -> tuple[str, str] | None:
    for kind in ("parameter", "buffer", "tensor_constant"):
        match spec.get(kind) if isinstance(spec, dict) else None:
            case {"arg": {"name": str(name)}, **rest} if isinstance(rest.get(f"{kind}_name"), str):
                return name, str(rest[f"{kind}_name"])
    return None


def _about(name: str, model: Mapping[str, Any], calls: list[Call]) -> list[str]:
    counts = Counter(call.quantizing for call in calls if call.quantizing)
    quantized = ", ".join(f"{count} {op}" for op, count in counts.items())
    version = str(model.get("torch_version", "an unknown version"))[:50]
    found = quantized or "none that quantizes"
    return [f"{name}: nodes: {len(calls)}, of them {found}; torch {version}"]


_STRIDED: Final = 7
_DTYPES: Final = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
    28: torch.uint16,
    29: torch.float8_e4m3fn,
    30: torch.float8_e5m2,
    31: torch.float8_e4m3fnuz,
    32: torch.float8_e5m2fnuz,
    33: torch.float8_e8m0fnu,
    34: torch.uint32,
    35: torch.uint64,
}
