"""What a file says a quantized tensor is made of, checked before it becomes one."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.numerics import ops
from halfstep.numerics.checks import check_codes, has_values, resolve_qparams
from halfstep.spec import QSpec

# Plain pickle knows no storage of uint16, so its bits travel as int16.
_SAME_BITS = (torch.int16, torch.uint16)
_LARGEST = 2**63 - 1


def packed_size(shape: Sequence[int], bits: int) -> int:
    """The bytes that 2- or 4-bit codes of this shape take: ceil(numel * bits / 8).

    >>> packed_size((3, 3), 4)
    5
    """
    return -(-math.prod(shape) * bits // 8)


def check_stored(
    parts: tuple[Any, Any, Any], spec: QSpec, dtype: Any, shape: Sequence[int] | None
) -> QSpec:
    """Refuse parts of a quantized tensor that break what ``QTensor`` takes for granted.

    parts: codes in ``spec.dtype.storage`` (uint16 also as int16), scale and zero point in the full
        scale shape; ``shape`` says that the codes are packed.

    Returns the spec with axes counted from the front. Raises ``ArgumentError`` or
    ``ArgumentTypeError``.
    """
    codes, scale, zero_point = parts
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ArgumentTypeError(f"dtype={dtype!r} is not a float dtype: the file is corrupt")
    for name, part in (("codes", codes), ("scale", scale), ("zero_point", zero_point)):
        is_plain = isinstance(part, Tensor) and not is_traceable_wrapper_subclass(part)
        if not is_plain or part.layout != torch.strided or part.device != codes.device:
            raise ArgumentTypeError(f"{name} is no plain tensor on the device of the others")
    size = _checked_size(codes, spec, shape)
    spec = spec.normalized(len(size))
    wanted = spec.granularity.scale_shape(tuple(size))
    for name, part, kind in (
        ("scale", scale, torch.float32),
        ("zero_point", zero_point, spec.zero_point_dtype),
    ):
        if tuple(part.shape) != wanted or part.dtype != kind:
            raise ArgumentError(
                f"{name} has shape {tuple(part.shape)} and dtype {part.dtype}: {spec} of a "
                f"{tuple(size)} tensor needs {kind} of shape {wanted}"
            )
    resolve_qparams(size, spec, scale, zero_point, codes.device)
    if has_values(codes) and (not spec.dtype.is_full or spec.narrow_range):
        check_codes(_unpacked(codes, spec, size), spec)
    return spec


def _checked_size(codes: Tensor, spec: QSpec, shape: Sequence[int] | None) -> torch.Size:
    """The shape of the tensor; its codes have to fill it exactly."""
    storage = torch.uint8 if spec.dtype.is_packed else spec.dtype.storage
    if codes.dtype != storage and (codes.dtype, storage) != _SAME_BITS:
        raise ArgumentTypeError(f"codes are {codes.dtype}: {spec} is stored as {storage}")
    if spec.dtype.is_packed != (shape is not None):
        raise ArgumentError(f"shape={shape} is given for packed codes alone, and {spec} differs")
    if shape is None:
        return codes.shape
    if not isinstance(shape, tuple | list) or not all(_is_size(size) for size in shape):
        raise ArgumentError(f"shape={shape!r} is not a shape: its sizes are integers from 0")
    if math.prod(max(size, 1) for size in shape) > _LARGEST:
        raise ArgumentError(f"shape={tuple(shape)} has more elements than any tensor")
    if tuple(codes.shape) != (packed_size(shape, spec.dtype.bits),):
        raise ArgumentError(
            f"codes have shape {tuple(codes.shape)}: a {tuple(shape)} tensor of {spec} is packed "
            f"into {packed_size(shape, spec.dtype.bits)} bytes"
        )
    return torch.Size(shape)


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _unpacked(codes: Tensor, spec: QSpec, size: torch.Size) -> Tensor:
    if spec.dtype.is_packed:
        return ops.unpack(codes, spec.dtype.bits, spec.dtype.signed, size)
    return codes.view(spec.dtype.storage)
