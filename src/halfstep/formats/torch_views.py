"""A tensor of a checkpoint as a strided view of the mapped file, checked before it is touched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from halfstep.errors import FileFormatError
from halfstep.formats.pickle_records import Call, Record
from halfstep.formats.torch_archive import Archive
from halfstep.formats.torch_dtypes import StorageReference, dtype_named

MAX_DIMS: Final = 64
MAX_REPEATED: Final = 1 << 28  # elements of a view that shows stored elements more than once

Shape: TypeAlias = tuple[int, ...]


class UnreadableTensorError(Exception):
    """A tensor of a kind that is not read; the text says why. It never leaves this package."""


@dataclass(frozen=True, slots=True)
class StridedView:
    """A strided view of a storage, checked against the bytes that are there."""

    archive: Archive
    storage: StorageReference
    dtype: torch.dtype
    offset: int  # in elements, as is the stride
    shape: Shape
    stride: Shape

    def check(self) -> None:
        """Raises ``FileFormatError`` when the view reaches outside its storage."""
        place = self.archive.ranges.get(self.storage.key)
        if place is None:
            raise FileFormatError(f"storage {self.storage.key!r} is missing")
        check_geometry(self.offset, self.shape, self.stride)
        available = (place[1] - self.storage.offset * self.storage.dtype.itemsize) // self.itemsize
        if self.extent > available:
            raise FileFormatError(
                f"shape {self.shape} reaches element {self.extent}, and its storage has {available}"
            )
        if self.numel > max(available, MAX_REPEATED):
            raise FileFormatError(
                f"shape {self.shape} repeats {available} stored elements to {self.numel}: "
                f"at most {MAX_REPEATED} are read"
            )

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    @property
    def numel(self) -> int:
        """The number of elements that the view shows."""
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """The number of stored elements up to the last one that the view shows."""
        if self.numel == 0:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in steps) + 1

    def read(self) -> Tensor:
        """The tensor: a view of the mapped file, or a copy where the file does not align it."""
        empty = torch.empty(0, dtype=self.dtype)
        if self.numel == 0:
            return empty.new_empty(self.shape)
        start, size = self.archive.ranges[self.storage.key]
        skipped = self.storage.offset * self.storage.dtype.itemsize
        raw = self.archive.data[start + skipped : start + size]
        if raw.data_ptr() % self.itemsize:
            raw = raw.clone()  # legacy files align nothing, and a kernel may fault on it
        return empty.set_(raw, self.offset, self.shape, self.stride)


def check_geometry(offset: int, shape: Shape, stride: Shape) -> None:
    """Raises ``FileFormatError`` for sizes and strides that no tensor can have."""
    if len(shape) != len(stride) or len(shape) > MAX_DIMS:
        raise FileFormatError(
            f"it has {len(shape)} sizes and {len(stride)} strides: allowed is as many of both, "
            f"at most {MAX_DIMS}"
        )
    spread = math.prod(max(size, 1) for size in shape)
    if min((offset, *shape, *stride)) < 0 or max(offset, spread, *stride, 0) >= 1 << 62:
        raise FileFormatError("corrupt: a size, a stride or an offset is negative or too large")


def plain_view(record: Record, archive: Archive) -> StridedView:
    """The view of a plain tensor's record, checked.

    ``_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, flags)``, or
    ``_rebuild_tensor_v3(..., hooks, dtype, flags)`` over an untyped storage.
    """
    if not isinstance(record, Call) or record.path not in PLAIN_BUILDERS:
        raise FileFormatError("corrupt: a plain tensor is expected, and there is something else")
    args, is_typed = record.args, record.path == _TYPED_BUILDER
    if len(args) > 6 + is_typed and args[6 + is_typed]:
        raise UnreadableTensorError(
            "it is a lazily conjugated or negated view: save resolve_conj()"
        )
    storage = StorageReference.parse(args[0] if args else None)
    if storage.qdtype is not None:
        raise FileFormatError("it is a plain tensor over the storage of a quantized one")
    dtype = storage.dtype if not is_typed else dtype_named(args[6] if len(args) > 6 else None)
    if dtype is None:
        raise UnreadableTensorError("its dtype is unknown to this torch")
    return view_of(archive, storage, dtype, args)


_TYPED_BUILDER: Final = "torch._utils._rebuild_tensor_v3"
PLAIN_BUILDERS: Final = frozenset(
    ["torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", _TYPED_BUILDER]
)


def view_of(
    archive: Archive, storage: StorageReference, dtype: torch.dtype, args: Sequence[Record]
) -> StridedView:
    """The view of a storage by the arguments (storage, offset, size, stride, ...), checked."""
    if len(args) < 4 or not isinstance(args[1], int):
        raise FileFormatError("corrupt: a tensor lacks its offset, shape or stride")
    view = StridedView(archive, storage, dtype, args[1], integers(args[2]), integers(args[3]))
    view.check()
    return view


def integers(record: Record) -> Shape:
    """A tuple of integers: a tuple, a list or a ``torch.Size`` of the pickle."""
    if isinstance(record, Call) and record.path == "torch.Size" and len(record.args) == 1:
        record = record.args[0]
    if not isinstance(record, tuple | list):
        raise FileFormatError("corrupt: a tensor's shape or stride is no tuple")
    sizes = tuple(int(size) for size in record if isinstance(size, int))
    if len(sizes) != len(record):
        raise FileFormatError(
            "corrupt: a tensor's shape or stride holds something that is no integer"
        )
    return sizes
