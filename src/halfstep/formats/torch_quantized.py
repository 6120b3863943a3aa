"""Torch's own old quantized tensors: integers, scale and zero point out of a checkpoint.

Nothing here uses a quantized dtype, scheme or constructor of torch, so that these files stay
readable in a torch that has forgotten them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.assemble import assemble, packed_size
from halfstep.formats.pickle_records import Call, Global, Record
from halfstep.formats.stored import StoredTensor
from halfstep.formats.torch_archive import Archive
from halfstep.formats.torch_dtypes import StorageReference
from halfstep.formats.torch_views import (
    StridedView,
    UnreadableTensorError,
    check_geometry,
    integers,
    plain_view,
    view_of,
)
from halfstep.spec import Granularity, PerChannel, PerTensor, QDType, QSpec

_PER_TENSOR: Final = frozenset(["torch.per_tensor_affine", "torch.per_tensor_symmetric"])
_PER_CHANNEL: Final = frozenset(
    [
        "torch.per_channel_affine",
        "torch.per_channel_symmetric",
        "torch.per_channel_affine_float_qparams",
    ]
)
_QPARAM_BYTES: Final = 8  # a float32 scale and a 4-byte zero point


def read_quantized(args: Sequence[Record], archive: Archive) -> StoredTensor:
    """The tensor of ``_rebuild_qtensor(storage, offset, size, stride, parameters, ...)``.

    parameters: (scheme, scale, zero point) or (scheme, scales, zero points, axis). Torch writes
    the scheme of float zero points as the integer one, so their dtype decides.
    Scales and zero points are checked when the tensor is read.

    Raises ``UnreadableTensorError`` for an unknown scheme, ``FileFormatError`` for bad values.
    """
    storage = StorageReference.parse(args[0] if args else None)
    if storage.qdtype is None or len(args) < 5 or not isinstance(args[4], tuple):
        raise FileFormatError("corrupt: a quantized tensor lacks its integers or its parameters")
    shape = integers(args[2])
    granularity, *qparams = _parameters(args[4], len(shape))
    scale, zero_point = (_qparam(record, archive) for record in qparams)
    spec = _spec(storage.qdtype, granularity, zero_point.dtype)
    codes = _codes(storage, args, archive)

    packed_shape = shape if spec.dtype.is_packed else None

    def load() -> Tensor:
        return assemble(codes.read(), spec, (scale.read(), zero_point.read()), shape=packed_shape)

    nbytes = codes.nbytes + _QPARAM_BYTES * math.prod(granularity.scale_shape(shape))
    return StoredTensor(shape, torch.float32, spec, nbytes, load)


@dataclass(frozen=True, slots=True)
class _Part:
    """The integers, scales or zero points of a tensor, to be read later."""

    dtype: torch.dtype
    nbytes: int
    read: Callable[[], Tensor]

    @classmethod
    def of(cls, view: StridedView) -> "_Part":
        return cls(view.dtype, view.numel * view.itemsize, view.read)


def _spec(dtype: QDType, granularity: Granularity, zero_point: torch.dtype) -> QSpec:
    is_float = zero_point.is_floating_point and isinstance(granularity, PerChannel)
    try:
        return QSpec(dtype, granularity, float_zero_point=is_float)
    except HalfstepError as error:
        raise UnreadableTensorError(str(error)) from error


def _parameters(record: tuple[Record, ...], ndim: int) -> tuple[Granularity, Record, Record]:
    match record:
        case (Global() as scheme, scale, zero_point) if scheme.path in _PER_TENSOR:
            return PerTensor(), scale, zero_point
        case (Global() as scheme, scale, zero_point, int(axis)) if scheme.path in _PER_CHANNEL:
            if not 0 <= axis < ndim:
                raise FileFormatError(f"its channel axis is {axis}, and it has {ndim} dimensions")
            return PerChannel(axis), scale, zero_point
        case (Global() as scheme, *_):
            raise UnreadableTensorError(f"its quantization scheme {scheme.path} is not read")
    raise FileFormatError("corrupt: a quantized tensor has unknown parameters")


def _codes(storage: StorageReference, args: Sequence[Record], archive: Archive) -> _Part:
    if storage.qdtype is not None and storage.qdtype.is_packed:
        return _packed_codes(storage, storage.qdtype.bits, args, archive)
    return _Part.of(view_of(archive, storage, storage.dtype, args))


def _packed_codes(
    storage: StorageReference, bits: int, args: Sequence[Record], archive: Archive
) -> _Part:
    """2- or 4-bit codes: row-major over the whole tensor, the first code in the lowest bits."""
    offset, shape, stride = args[1], integers(args[2]), integers(args[3])
    check_geometry(0, shape, stride)
    if offset != 0 or not _is_contiguous(shape, stride):
        raise UnreadableTensorError(
            f"it is a strided view of {bits}-bit codes: save its contiguous()"
        )
    nbytes = packed_size(shape, bits)
    view = StridedView(archive, storage, torch.uint8, 0, (nbytes,), (1,))
    view.check()
    return _Part.of(view)


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return math.prod(shape) == 0
        expected *= size
    return True


def _qparam(record: Record, archive: Archive) -> _Part:
    """A scale or zero point: a number, a list of numbers (torch 1.3), or a plain tensor."""
    if isinstance(record, Call):
        return _Part.of(plain_view(record, archive))
    numbers = record if isinstance(record, list) else [record]
    checked = [number for number in numbers if isinstance(number, int | float)]
    if len(checked) != len(numbers) or any(abs(number) >= 1 << 62 for number in checked):
        raise FileFormatError("corrupt: a scale or zero point is no number, or too large")
    is_float = any(isinstance(number, float) for number in checked)
    values = torch.tensor(checked, dtype=torch.float64 if is_float else torch.int64)
    return _Part(values.dtype, 0, lambda: values if isinstance(record, list) else values[0])
