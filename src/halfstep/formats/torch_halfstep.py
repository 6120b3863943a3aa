"""Halfstep's own quantized tensors in a checkpoint of ``torch.save``."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from halfstep.errors import FileFormatError
from halfstep.formats.assemble import assemble, packed_size, spec_of
from halfstep.formats.pickle_records import Call, Pairs, Record
from halfstep.formats.stored import StoredTensor
from halfstep.formats.torch_archive import Archive
from halfstep.formats.torch_dtypes import dtype_named
from halfstep.formats.torch_views import StridedView, integers, plain_view

_SAME_BITS: Final = (torch.int16, torch.uint16)  # torch.load(weights_only=True) refuses uint16


def read_halfstep(args: Sequence[Record], archive: Archive) -> StoredTensor:
    """The tensor of ``rebuild_qtensor(codes, scale, zero_point, spec, dtype, shape, ...)``.

    ``shape`` is None unless the codes are packed. Raises ``FileFormatError`` for anything else.
    """
    match args:
        case (
            Call() as codes,
            Call() as scale,
            Call() as zero_point,
            Pairs() as spec,
            dtype,
            shape,
            *_,
        ):
            parts = [plain_view(part, archive) for part in (codes, scale, zero_point)]
        case _:
            raise FileFormatError("corrupt: a quantized tensor lacks its integers or its format")
    return _stored(parts, spec, dtype_named(dtype), None if shape is None else integers(shape))


def _stored(
    parts: list[StridedView],
    plain_spec: Pairs,
    dtype: torch.dtype | None,
    packed_shape: tuple[int, ...] | None,
) -> StoredTensor:
    codes, scale, zero_point = parts
    spec = spec_of({str(key): value for key, value in plain_spec.pairs if isinstance(key, str)})
    is_packed = packed_shape is not None
    storage = torch.uint8 if is_packed else spec.dtype.storage
    is_stored = codes.dtype == storage or (codes.dtype, storage) == _SAME_BITS
    if dtype is None or not is_stored or is_packed != spec.dtype.is_packed:
        raise FileFormatError("corrupt: its integers do not have the dtype of its format")
    if packed_shape is not None and codes.shape != (packed_size(packed_shape, spec.dtype.bits),):
        raise FileFormatError("corrupt: its packed integers do not have the size of its shape")

    def load() -> Tensor:
        qparams = (scale.read(), zero_point.read())
        return assemble(codes.read().view(storage), spec, qparams, dtype=dtype, shape=packed_shape)

    nbytes = sum(part.numel * part.itemsize for part in parts)
    return StoredTensor(
        codes.shape if packed_shape is None else packed_shape, dtype, spec, nbytes, load
    )
