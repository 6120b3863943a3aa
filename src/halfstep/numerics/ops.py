"""The arithmetic as torch operators in the namespace ``halfstep``.

Each operator has the plain-PyTorch formula for every device, a fake implementation for
``torch.compile`` and ``torch.export``, and a native kernel on the CPU where one is loaded. The
names below are the operators; their schemas say what they take, the formulas' rooms what they do.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from halfstep.numerics import (
    affine,
    blocks,
    histogram,
    integer,
    learnable,
    native,
    packing,
    qparams,
)

Op: TypeAlias = Callable[..., Tensor]
MultiOp: TypeAlias = Callable[..., tuple[Tensor, ...]]

# torch types this class no further than Any.
LIBRARY: Any = torch.library.Library("halfstep", "DEF")
_QPARAMS = "Tensor scale, Tensor zero_point"
_BOUNDS = "int qmin, int qmax"
_OPERANDS = (
    "Tensor x, Tensor x_scale, Tensor x_zero_point, Tensor w, Tensor w_scale, Tensor w_zero_point"
)


def _register(
    schema: str,
    reference: Callable[..., Any],
    fake: Callable[..., Any],
    kernel: Callable[..., Any] | None = None,
) -> Any:
    """Define one operator; ``kernel`` serves the CPU when the native kernels are loaded."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, reference, "CompositeExplicitAutograd")
    if kernel is not None and native.is_loaded():
        LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"halfstep::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.halfstep, name).default


def _like_scale(scale: Tensor, *dtypes: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(scale, dtype=dtype) for dtype in dtypes)


quantize: Op = _register(
    f"quantize(Tensor x, {_QPARAMS}, {_BOUNDS}, ScalarType dtype, bool check_nan=False) -> Tensor",
    affine.quantize,
    lambda x, scale, zero_point, qmin, qmax, dtype, check_nan=False: torch.empty_like(
        x, dtype=dtype
    ),
    native.quantize,
)
dequantize: Op = _register(
    f"dequantize(Tensor q, {_QPARAMS}, ScalarType dtype) -> Tensor",
    affine.dequantize,
    lambda q, scale, zero_point, dtype: torch.empty_like(q, dtype=dtype),
    native.dequantize,
)
fake_quantize: Op = _register(
    f"fake_quantize(Tensor x, {_QPARAMS}, {_BOUNDS}) -> Tensor",
    affine.fake_quantize,
    lambda x, *_: torch.empty_like(x),
    native.fake_quantize,
)
fake_quantize_with_mask: MultiOp = _register(
    f"fake_quantize_with_mask(Tensor x, {_QPARAMS}, {_BOUNDS}) -> (Tensor, Tensor)",
    affine.fake_quantize_with_mask,
    lambda x, *_: (torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)),
    native.fake_quantize_with_mask,
)
mask_gradient: Op = _register(
    "mask_gradient(Tensor grad, Tensor mask) -> Tensor",
    affine.mask_gradient,
    lambda grad, mask: torch.empty_like(grad),
    native.mask_gradient,
)
learnable_fake_quantize: Op = _register(
    f"learnable_fake_quantize(Tensor x, {_QPARAMS}, {_BOUNDS}, float grad_factor) -> Tensor",
    learnable.learnable_fake_quantize,
    lambda x, *_: torch.empty_like(x),
    native.learnable_fake_quantize,
)
learnable_fake_quantize_backward: MultiOp = _register(
    f"learnable_fake_quantize_backward(Tensor grad, Tensor x, {_QPARAMS}, {_BOUNDS}, "
    "float grad_factor) -> (Tensor, Tensor, Tensor)",
    learnable.learnable_fake_quantize_backward,
    lambda grad, x, scale, *_: (
        torch.empty_like(x),
        *_like_scale(scale, torch.float32, torch.float32),
    ),
    native.learnable_fake_quantize_backward,
)
min_max: MultiOp = _register(
    "min_max(Tensor x, SymInt[] shape) -> (Tensor, Tensor)",
    blocks.min_max,
    lambda x, shape: (
        x.new_empty(shape, dtype=torch.float32),
        x.new_empty(shape, dtype=torch.float32),
    ),
    native.min_max,
)
histogram_: Callable[[Tensor, Tensor, Tensor], None] = _register(
    "histogram_(Tensor(a!) counts, Tensor x, Tensor top) -> ()",
    histogram.histogram_,
    lambda counts, x, top: None,
    native.histogram_,
)
choose_qparams: MultiOp = _register(
    f"choose_qparams(Tensor lo, Tensor hi, {_BOUNDS}, bool symmetric) -> (Tensor, Tensor)",
    qparams.choose_qparams,
    lambda lo, *_: _like_scale(lo, torch.float32, torch.int32),
)
pack: Op = _register(
    "pack(Tensor ints, int bits) -> Tensor",
    packing.pack,
    lambda ints, bits: ints.new_empty(((ints.numel() * bits + 7) // 8,), dtype=torch.uint8),
    native.pack,
)
unpack: Op = _register(
    "unpack(Tensor packed, int bits, bool signed, SymInt[] shape) -> Tensor",
    packing.unpack,
    lambda packed, bits, signed, shape: packed.new_empty(
        shape, dtype=torch.int8 if signed else torch.uint8
    ),
    native.unpack,
)
matmul: Op = _register(
    "matmul(Tensor a, Tensor a_scale, Tensor a_zero_point, "
    "Tensor b, Tensor b_scale, Tensor b_zero_point) -> Tensor",
    integer.matmul,
    lambda a, a_scale, a_zero_point, b, *_: a.float() @ b.float(),
)
linear: Op = _register(
    f"linear({_OPERANDS}, Tensor? bias=None) -> Tensor",
    integer.linear,
    lambda x, x_scale, x_zero_point, w, *_: x.new_empty(
        (*x.shape[:-1], w.shape[0]), dtype=torch.float32
    ),
)
conv: Op = _register(
    f"conv({_OPERANDS}, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
    "SymInt groups) -> Tensor",
    integer.conv,
    lambda x, x_scale, x_zero_point, w, w_scale, w_zero_point, bias, *rest: integer.CONV[w.ndim](
        x.float(), w.float(), None, *rest
    ),
)
conv_transpose: Op = _register(
    f"conv_transpose({_OPERANDS}, Tensor? bias, SymInt[] stride, SymInt[] padding, "
    "SymInt[] output_padding, SymInt groups, SymInt[] dilation) -> Tensor",
    integer.conv_transpose,
    lambda x, x_scale, x_zero_point, w, w_scale, w_zero_point, bias, *rest: integer.CONV_TRANSPOSE[
        w.ndim
    ](x.float(), w.float(), None, *rest),
)
requantize: Op = _register(
    f"requantize(Tensor y, {_QPARAMS}, {_BOUNDS}, ScalarType dtype) -> Tensor",
    integer.requantize,
    lambda y, scale, zero_point, qmin, qmax, dtype: torch.empty_like(y, dtype=dtype),
)
