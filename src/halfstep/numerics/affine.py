"""The affine mapping between floats and integers, in plain PyTorch: the oracle.

Every formula stands here once. All arithmetic is IEEE float32 in the written order, ``rne`` is
round-half-to-even, and ``scale`` has x's number of dimensions, each of size 1, x's, or a divisor
of x's. ``zero_point`` has scale's shape: int32, or float32 in the float-zero-point form.
"""

import torch
from torch import Tensor

from halfstep.errors import NonFiniteError

# The kernels and half of torch's operators cannot read these: they are computed as float32.
FLOAT8 = frozenset(
    (
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    )
)


def spread(qparam: Tensor, shape: torch.Size) -> Tensor:
    """Repeat the grouped dimensions of a scale or zero point, until it broadcasts to ``shape``."""
    for dim, (size, groups) in enumerate(zip(shape, qparam.shape, strict=True)):
        if 1 < groups < size:
            qparam = qparam.repeat_interleave(size // groups, dim)
    return qparam


def needs_float64(qmin: int, qmax: int) -> bool:
    """Whether a code within these bounds may be rounded by a float32 sum (only 32-bit codes)."""
    return qmin < -65536 or qmax > 65536


def unclamped_codes(x: Tensor, scale: Tensor, zero_point: Tensor, *, exact: bool) -> Tensor:
    """The code before clamping, ``rne(x / scale) + zero_point``, as floats; NaN stays NaN.

    ``exact`` adds in float64. Up to 16 bits float32 gives the same code once it is clamped.
    """
    scaled = x.float() / spread(scale, x.shape)
    zero_point = spread(zero_point, x.shape)
    if zero_point.is_floating_point():
        # + 0.0 turns -0.0, which no integer has, into 0.0.
        return (scaled + zero_point).round() + 0.0
    return (scaled.round().double() if exact else scaled.round()) + zero_point


def quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    dtype: torch.dtype,
    check_nan: bool = False,
) -> Tensor:
    """q = clamp(rne(x / scale) + zero_point, qmin, qmax); NaN counts as 0 unless it is checked."""
    values = x.float()
    nan = values.isnan()
    if check_nan and bool(nan.any()):
        raise nan_error(values)
    exact = needs_float64(qmin, qmax)
    codes = unclamped_codes(values.masked_fill(nan, 0.0), scale, zero_point, exact=exact)
    return torch.empty_like(x, dtype=dtype).copy_(codes.clamp(qmin, qmax))


def nan_error(x: Tensor) -> NonFiniteError:
    """The error for NaN in an input that is to be quantized."""
    count = int(x.float().isnan().sum())
    return NonFiniteError(
        f"x holds {count} NaN in {x.numel()} values: clean it, or pass nan='ignore' to quantize "
        "each NaN as 0"
    )


def dequantize(q: Tensor, scale: Tensor, zero_point: Tensor, dtype: torch.dtype) -> Tensor:
    """x' = (q - zero_point) * scale, the difference exact, rounded once more to ``dtype``."""
    values = steps_from_zero(q, zero_point) * spread(scale, q.shape)
    return torch.empty_like(q, dtype=dtype).copy_(values)


def steps_from_zero(q: Tensor, zero_point: Tensor) -> Tensor:
    """q - zero_point as float32: exact in integers, or one float32 difference."""
    zero_point = spread(zero_point, q.shape)
    if zero_point.is_floating_point():
        return q.float() - zero_point
    wide = torch.int64 if q.dtype == torch.int32 else torch.int32
    return (q.to(wide) - zero_point.to(wide)).float()


def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    """dequantize(quantize(x)) in x's dtype; NaN stays NaN."""
    return fake_quantize_with_mask(x, scale, zero_point, qmin, qmax)[0]


def fake_quantize_with_mask(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int
) -> tuple[Tensor, Tensor]:
    """The fake-quantized x, and where its code needed no clamping: there the gradient is 1."""
    exact = needs_float64(qmin, qmax)
    codes = unclamped_codes(x, scale, zero_point, exact=exact)
    inside = (codes >= qmin) & (codes <= qmax)
    steps = (codes.clamp(qmin, qmax) - spread(zero_point, x.shape)).float()
    y = torch.empty_like(x).copy_(steps * spread(scale, x.shape))
    return y, torch.empty_like(x, dtype=torch.bool).copy_(inside)


def mask_gradient(grad: Tensor, mask: Tensor) -> Tensor:
    """The straight-through gradient: ``grad`` where the mask is set, 0 elsewhere."""
    return torch.empty_like(grad).copy_(torch.where(mask, grad, torch.zeros_like(grad)))
