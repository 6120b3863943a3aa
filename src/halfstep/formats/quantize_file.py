"""Weight-only quantization of a file of tensors, without the model's code."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError, FileFormatError, HalfstepError
from halfstep.formats.assemble import packed_size
from halfstep.formats.atomic import replacing
from halfstep.formats.chunks import chunks, comparable
from halfstep.formats.files import open_file
from halfstep.formats.model_file import MODEL_KIND
from halfstep.formats.places import as_path
from halfstep.formats.safe_file import (
    SAVED_DTYPES,
    SCALE_SUFFIX,
    STANDS_FOR,
    ZERO_POINT_SUFFIX,
)
from halfstep.formats.safe_writer import Layout, SafeWriter
from halfstep.formats.save import description, metadata_of, parts_of
from halfstep.formats.selection import select
from halfstep.formats.stored import StoredTensor, TensorFile
from halfstep.spec import QDType, QSpec
from halfstep.tensor import QTensor, quantize

_SUFFIXES: Final = (SCALE_SUFFIX, ZERO_POINT_SUFFIX)
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class FileRow:
    """One tensor: its bytes before and after, and why it was kept as it is; empty if quantized."""

    name: str
    shape: tuple[int, ...]
    before: int
    after: int
    kept: str = ""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What became of each tensor of a file, in its order.

    left_out: values of a checkpoint that are no tensors.
    """

    rows: tuple[FileRow, ...]
    left_out: tuple[str, ...] = ()

    @property
    def before(self) -> int:
        """The bytes of all tensors before."""
        return sum(row.before for row in self.rows)

    @property
    def after(self) -> int:
        """The bytes of all tensors after, scales and zero points included."""
        return sum(row.after for row in self.rows)

    @property
    def quantized(self) -> tuple[FileRow, ...]:
        """The tensors that were quantized."""
        return tuple(row for row in self.rows if not row.kept)

    def __str__(self) -> str:
        lines = [f"{row.name}: {row.before} -> {row.after} bytes" for row in self.quantized]
        lines += [f"{row.name}: kept, {row.kept}" for row in self.rows if row.kept]
        count = f"{len(self.quantized)} of {len(self.rows)} tensors quantized"
        return "\n".join([*lines, f"{count}: {self.before} -> {self.after} bytes"])


def quantize_file(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    spec: QSpec | QDType | torch.dtype,
    *,
    exclude: Sequence[str] = (),
    progress: Progress = lambda count: None,
) -> FileReport:
    """Quantize the weights in a file: float tensors of two and more dimensions that ``spec`` fits.

    All others are copied byte for byte and listed with the reason; the texts in the source's
    metadata stay. One tensor at a time is in memory. The new file appears whole or not at all, and
    may take the place of the source.

    source: a safetensors file, or a checkpoint of ``torch.save``.
    target: a safetensors file.
    exclude: names or globs of tensors to keep.
    progress: is told the bytes of each tensor that is done.

    Raises ``FileFormatError`` for a source that cannot be read whole, ``ArgumentError`` for a name
    in ``exclude`` that matches nothing and for a model file, ``OSError`` when the disk refuses.

    >>> import halfstep as hs, tempfile
    >>> state = {"fc.weight": torch.randn(8, 64), "fc.bias": torch.zeros(8)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hs.save_tensors(state, f"{folder}/a.safetensors")
    ...     spec = hs.QSpec(hs.int4, hs.PerGroup(1, 32), symmetric=True)
    ...     print(quantize_file(f"{folder}/a.safetensors", f"{folder}/b.safetensors", spec))
    fc.weight: 2048 -> 384 bytes
    fc.bias: kept, it has 1 dimension
    1 of 2 tensors quantized: 2080 -> 416 bytes
    """
    wanted = spec if isinstance(spec, QSpec) else QSpec(spec)
    place, opened = as_path(target), open_file(source)
    _check_source(opened)
    excluded = set(select(opened.tensors, exclude)) if exclude else set()
    kept = {
        name: "excluded" if name in excluded else _reason(name, stored, wanted, opened.tensors)
        for name, stored in opened.tensors.items()
    }
    specs = {name: wanted for name, reason in kept.items() if not reason}
    with replacing(place) as file:
        writer = SafeWriter(file, *_plan(opened, specs))
        rows = tuple(
            _write(writer, name, stored, specs.get(name), kept[name], progress)
            for name, stored in opened.tensors.items()
        )
    return FileReport(rows, opened.others)


def _check_source(opened: TensorFile) -> None:
    if opened.kind == MODEL_KIND:
        raise ArgumentError(
            f"{opened.path} is a quantized model: give the file of the float weights it came from"
        )
    for name, reason in opened.unreadable.items():
        raise FileFormatError(f"{opened.path}: tensor {name[:200]!r} cannot be read: {reason}")
    for name, stored in opened.tensors.items():
        if stored.spec is None and stored.dtype not in SAVED_DTYPES:
            raise ArgumentTypeError(
                f"{opened.path}: tensor {name[:200]!r} is {stored.dtype}, which safetensors lacks"
            )


def _reason(
    name: str, stored: StoredTensor, spec: QSpec, tensors: Mapping[str, StoredTensor]
) -> str:
    """Why a tensor is kept as it is; empty where it is quantized."""
    taken = [name + suffix for suffix in _SUFFIXES if name + suffix in tensors]
    if taken and stored.spec is None:
        return f"the name {taken[0]} is taken"
    form = _unfit(stored, spec)
    if form:
        return form
    odd = sum(int((~comparable(chunk).isfinite()).sum()) for chunk in chunks(stored.load()))
    return f"it holds values that are not finite ({odd})" if odd else ""


def _unfit(stored: StoredTensor, spec: QSpec) -> str:
    """What of its format and shape does not fit; empty where all does."""
    dims = len(stored.shape)
    if stored.spec is not None:
        return f"it is {stored.spec.dtype} already"
    if stored.dtype not in STANDS_FOR.values():
        return f"it is {str(stored.dtype).removeprefix('torch.')}"
    if dims < 2 or 0 in stored.shape:
        return f"it has {dims} dimension{'s' * (dims != 1)}" if dims < 2 else "it is empty"
    try:
        spec.granularity.scale_shape(stored.shape)
    except HalfstepError as error:
        return str(error)
    return ""


def _plan(
    opened: TensorFile, specs: Mapping[str, QSpec]
) -> tuple[dict[str, Layout], dict[str, str]]:
    """Dtype and shape of every entry, and the metadata."""
    layouts: dict[str, Layout] = {}
    described: dict[str, Any] = {}
    for name, stored in opened.tensors.items():
        spec = stored.spec or specs.get(name)
        if spec is None:
            layouts[name] = (stored.dtype, stored.shape)
            continue
        spec = spec.normalized(len(stored.shape))
        scales = spec.granularity.scale_shape(stored.shape)
        is_packed, dtype = spec.dtype.is_packed, spec.dtype
        packed = (torch.uint8, (packed_size(stored.shape, dtype.bits),))
        layouts[name] = packed if is_packed else (dtype.storage, stored.shape)
        layouts[name + SCALE_SUFFIX] = (torch.float32, scales)
        layouts[name + ZERO_POINT_SUFFIX] = (spec.zero_point_dtype, scales)
        described[name] = description(spec, stored.shape, stored.dtype)
    return layouts, {**opened.metadata, **metadata_of(list(opened.tensors), described)}


def _write(
    writer: SafeWriter,
    name: str,
    stored: StoredTensor,
    spec: QSpec | None,
    kept: str,
    progress: Progress,
) -> FileRow:
    tensor = stored.load()
    if spec is not None:
        tensor = quantize(tensor, spec)
    parts: dict[str, Tensor] = (
        parts_of(name, tensor) if isinstance(tensor, QTensor) else {name: tensor}
    )
    for each, part in parts.items():
        writer.put(each, part)
    progress(stored.nbytes)
    after = sum(part.numel() * part.element_size() for part in parts.values())
    return FileRow(name, stored.shape, stored.nbytes, after, kept)
