"""A QTensor from what a file holds: checked like anyone's input, and left where it is mapped."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.chunks import chunks
from halfstep.numerics.checks import check_codes, resolve_qparams
from halfstep.numerics.ops import unpack
from halfstep.numerics.stored import packed_size
from halfstep.spec import QSpec
from halfstep.tensor import QTensor

__all__ = ["assemble", "packed_size", "spec_of"]


def assemble(
    codes: Tensor,
    spec: QSpec,
    qparams: tuple[Tensor, Tensor],
    *,
    dtype: torch.dtype = torch.float32,
    shape: tuple[int, ...] | None = None,
) -> QTensor:
    """The quantized tensor of these integers, which are not copied unless their layout asks for it.

    codes: in ``spec.dtype.storage``; where ``shape`` is given, packed into bytes.
    qparams: scale and zero point, numbers or per channel or in the full scale shape.

    Raises ``FileFormatError`` for codes, scales or zero points outside the format.
    """
    size = codes.shape if shape is None else torch.Size(shape)
    try:
        scale, zero_point = resolve_qparams(size, spec, *qparams, codes.device)
        if not spec.dtype.is_full or spec.narrow_range:
            bits, signed = spec.dtype.bits, spec.dtype.signed
            for chunk in chunks(codes if shape is None else unpack(codes, bits, signed, shape)):
                check_codes(chunk, spec)
    except HalfstepError as error:
        raise FileFormatError(str(error)) from error
    if shape is None and torch.empty_like(codes, device="meta").stride() != codes.stride():
        codes = codes.clone(memory_format=torch.contiguous_format)  # repeated or with gaps
    return QTensor(codes, scale, zero_point, spec, dtype=dtype, shape=shape)


def spec_of(plain: Mapping[str, Any]) -> QSpec:
    """The format written in a file as plain data; ``FileFormatError`` when it is none."""
    try:
        return QSpec.from_dict(plain)
    except (HalfstepError, TypeError) as error:
        raise FileFormatError(f"its quantization format is not readable: {error}") from error
