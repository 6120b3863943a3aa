"""A QTensor from what a file holds: checked like anyone's input, and left where it is mapped."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.chunks import chunks
from halfstep.numerics.checks import resolve_qparams
from halfstep.numerics.ops import unpack
from halfstep.spec import QSpec
from halfstep.tensor import QTensor


def packed_size(shape: tuple[int, ...], bits: int) -> int:
    """The bytes that 2- or 4-bit codes of this shape take: ceil(numel * bits / 8)."""
    return -(-math.prod(shape) * bits // 8)


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
    except HalfstepError as error:
        raise FileFormatError(str(error)) from error
    if not spec.dtype.is_full or spec.narrow_range:
        ints = codes if shape is None else unpack(codes, spec.dtype.bits, spec.dtype.signed, shape)
        _check_codes(ints, spec)
    if shape is None and torch.empty_like(codes, device="meta").stride() != codes.stride():
        codes = codes.clone(memory_format=torch.contiguous_format)  # repeated or with gaps
    return QTensor(codes, scale, zero_point, spec, dtype=dtype, shape=shape)


def _check_codes(ints: Tensor, spec: QSpec) -> None:
    for chunk in chunks(ints):
        low, high = (int(bound) for bound in torch.aminmax(chunk.to(torch.int32)))
        if low < spec.qmin or high > spec.qmax:
            raise FileFormatError(
                f"its integers run from {low} to {high}, and {spec} holds "
                f"[{spec.qmin}, {spec.qmax}]"
            )


def spec_of(plain: Mapping[str, Any]) -> QSpec:
    """The format written in a file as plain data; ``FileFormatError`` when it is none."""
    try:
        return QSpec.from_dict(plain)
    except (HalfstepError, TypeError) as error:
        raise FileFormatError(f"its quantization format is not readable: {error}") from error
