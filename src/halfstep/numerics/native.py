"""The native CPU kernels, called like the plain-PyTorch formulas that they equal in every bit.

``csrc`` builds them into the module ``_native``. Where it is missing, or ``HALFSTEP_NATIVE=0`` is
set, ``is_loaded()`` is false, ``why_not()`` says why, and the plain formulas serve every call.

Tensors stay where they are: any axis, any memory format and any strides are read in place, and
results have the layout of ``torch.empty_like(x)``.
"""

import importlib
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import affine, histogram, learnable


def _load() -> tuple[Any, str | None]:
    """The module of kernels, or None and the reason."""
    if os.environ.get("HALFSTEP_NATIVE") == "0":
        return None, "switched off by HALFSTEP_NATIVE=0"
    try:
        return importlib.import_module("halfstep.numerics._native"), None
    except ImportError as error:
        return None, f"not built, or built for another Python: {error}"


_kernels, _reason = _load()


def is_loaded() -> bool:
    """Whether the native kernels serve CPU tensors.

    >>> from halfstep.numerics import native
    >>> native.is_loaded() == (native.why_not() is None)
    True
    """
    return _kernels is not None


def why_not() -> str | None:
    """Why the native kernels are not in use, or None when they are."""
    return _reason


def kernels() -> Any:
    """The module of kernels, for the wrappers beside this file; None without."""
    return _kernels


def level() -> str | None:
    """The instruction level in use, one of ``levels()``; None without kernels."""
    return _kernels.level() if is_loaded() else None


def levels() -> tuple[str, ...]:
    """Those of x86-64-v4-vnni, -v4, -v3 and baseline that this processor runs; () without any."""
    return _kernels.levels() if is_loaded() else ()


def use_level(name: str) -> None:
    """Choose an instruction level for the whole process; results do not depend on it.

    Raises ``ArgumentError`` for a level that is not in ``levels()``.

    >>> from halfstep.numerics import native
    >>> for name in native.levels()[:1]:
    ...     native.use_level(name)
    """
    if not is_loaded():
        raise ArgumentError(f"level={name!r} cannot be used without the native kernels: {_reason}")
    _kernels.use_level(name)


def _readable(x: Tensor) -> Tensor:
    """x in a dtype that the kernels read: float8 as float32, which loses nothing."""
    return x.float() if x.dtype in affine.FLOAT8 else x


def quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    dtype: torch.dtype,
    check_nan: bool = False,
) -> Tensor:
    """q = clamp(rne(x / scale) + zero_point, qmin, qmax); see ``affine.quantize``."""
    x = _readable(x)
    codes = torch.empty_like(x, dtype=dtype)
    has_nan = _kernels.quantize(
        codes,
        x,
        scale.contiguous(),
        zero_point.contiguous(),
        qmin,
        qmax,
        torch.get_num_threads(),
    )
    if has_nan and check_nan:
        raise affine.nan_error(x)
    return codes


def dequantize(q: Tensor, scale: Tensor, zero_point: Tensor, dtype: torch.dtype) -> Tensor:
    """x' = (q - zero_point) * scale; see ``affine.dequantize``."""
    if dtype in affine.FLOAT8:
        return affine.dequantize(q, scale, zero_point, dtype)
    y = torch.empty_like(q, dtype=dtype)
    _kernels.dequantize(y, q, scale.contiguous(), zero_point.contiguous(), torch.get_num_threads())
    return y


def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    """dequantize(quantize(x)) in x's dtype; see ``affine.fake_quantize``."""
    if x.dtype in affine.FLOAT8:
        return affine.fake_quantize(x, scale, zero_point, qmin, qmax)
    y = torch.empty_like(x)
    _run_fake_quantize(y, None, x, scale, zero_point, qmin, qmax)
    return y


def fake_quantize_with_mask(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int
) -> tuple[Tensor, Tensor]:
    """The fake-quantized x and its gradient mask; see ``affine.fake_quantize_with_mask``."""
    if x.dtype in affine.FLOAT8:
        return affine.fake_quantize_with_mask(x, scale, zero_point, qmin, qmax)
    y, mask = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    _run_fake_quantize(y, mask, x, scale, zero_point, qmin, qmax)
    return y, mask


def _run_fake_quantize(
    y: Tensor,
    mask: Tensor | None,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
) -> None:
    _kernels.fake_quantize(
        y,
        mask,
        x,
        scale.contiguous(),
        zero_point.contiguous(),
        qmin,
        qmax,
        torch.get_num_threads(),
    )


def mask_gradient(grad: Tensor, mask: Tensor) -> Tensor:
    """``grad`` where the mask is set, 0 elsewhere; see ``affine.mask_gradient``."""
    if grad.dtype in affine.FLOAT8:
        return affine.mask_gradient(grad, mask)
    out = torch.empty_like(grad)
    _kernels.mask_gradient(out, grad, mask, torch.get_num_threads())
    return out


def learnable_fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, grad_factor: float
) -> Tensor:
    """fake_quantize(x, scale, rne(zero_point)); see ``learnable.learnable_fake_quantize``."""
    rounded = learnable.integer_zero_point(zero_point, qmin, qmax)
    return fake_quantize(x, scale, rounded, qmin, qmax)


def learnable_fake_quantize_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    grad_factor: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, scale and zero point; see ``learnable.learnable_fake_quantize_backward``."""
    if affine.needs_float64(qmin, qmax) or not affine.FLOAT8.isdisjoint((x.dtype, grad.dtype)):
        return learnable.learnable_fake_quantize_backward(
            grad, x, scale, zero_point, qmin, qmax, grad_factor
        )
    scale = scale.contiguous()
    rounded = learnable.integer_zero_point(zero_point, qmin, qmax).contiguous()
    grad_x, grad_scale, grad_zero_point = (
        torch.empty_like(x),
        torch.empty_like(scale),
        torch.empty_like(scale),
    )
    _kernels.learnable_backward(
        grad_x,
        grad_scale,
        grad_zero_point,
        grad,
        x,
        scale,
        rounded,
        qmin,
        qmax,
        grad_factor,
        torch.get_num_threads(),
    )
    return grad_x, grad_scale, grad_zero_point


def min_max(x: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The least and greatest value of each block, in float32; see ``blocks.min_max``."""
    lo = torch.empty(shape, dtype=torch.float32)
    hi = torch.empty_like(lo)
    _kernels.min_max(lo, hi, _readable(x), torch.get_num_threads())
    return lo, hi


def histogram_(counts: Tensor, x: Tensor, top: Tensor) -> None:
    """Add x to the counts of its bins; see ``histogram.histogram_``."""
    if counts.dtype != torch.int64 or not counts.is_contiguous():
        raise ArgumentError(
            f"counts is {counts.dtype} with strides {counts.stride()}: give contiguous int64"
        )
    if counts.shape[:-1] != top.shape:
        raise ArgumentError(
            f"counts has shape {tuple(counts.shape)}, and top {tuple(top.shape)}: give counts one "
            "dimension more, the bins"
        )
    bins = counts.shape[-1]
    shift = histogram.MANTISSA_BITS - histogram.mantissa_bits_of(bins)
    base = histogram.window_base(top, bins).contiguous()
    _kernels.histogram(counts.data_ptr(), bins, _readable(x), base, shift, torch.get_num_threads())


def pack(ints: Tensor, bits: int) -> Tensor:
    """2- or 4-bit codes in bytes; see ``packing.pack``. A strided input is copied first."""
    packed = torch.empty((ints.numel() * bits + 7) // 8, dtype=torch.uint8)
    _kernels.pack(packed, ints.contiguous(), bits)
    return packed


def unpack(packed: Tensor, bits: int, signed: bool, shape: Sequence[int]) -> Tensor:
    """The codes of ``pack``; see ``packing.unpack``."""
    codes = torch.empty(shape, dtype=torch.int8 if signed else torch.uint8)
    _kernels.unpack(codes, packed.contiguous(), bits, signed)
    return codes
