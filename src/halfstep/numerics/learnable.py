"""Learnable fake-quantize in plain PyTorch: gradients for scale and zero point.

Source: Esser et al., "Learned Step Size Quantization", ICLR 2020; Bhalgat et al., "LSQ+", 2020.
"""

import math

import torch
from torch import Tensor

from halfstep.numerics.affine import fake_quantize, spread, unclamped_codes
from halfstep.numerics.blocks import block_sum

FLOAT32_MAX = torch.finfo(torch.float32).max


def integer_zero_point(zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    """z = clamp(rne(zero_point), qmin, qmax), the integer that a learned zero point stands for."""
    return zero_point.round().clamp(qmin, qmax).to(torch.int32)


def learnable_fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, grad_factor: float
) -> Tensor:
    """fake_quantize(x, scale, z); ``grad_factor`` only matters to the gradient."""
    return fake_quantize(x, scale, integer_zero_point(zero_point, qmin, qmax), qmin, qmax)


def learnable_fake_quantize_backward(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    qmin: int,
    qmax: int,
    grad_factor: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, scale and zero point.

    With v = x / scale and t = rne(v) + z:

        inside [qmin, qmax]   grad_x = grad   ds = grad * (rne(v) - v)     dz = 0
        t < qmin              grad_x = 0      ds = grad * (qmin - z)       dz = -grad * scale
        t > qmax              grad_x = 0      ds = grad * (qmax - z)       dz = -grad * scale

    ds and dz are summed over the elements that share a scale, and times ``grad_factor``.
    """
    z = integer_zero_point(zero_point, qmin, qmax)
    codes = unclamped_codes(x, scale, z, exact=False)
    below, above = codes < qmin, codes > qmax
    inside = (codes >= qmin) & (codes <= qmax)
    step, offset, grad32 = spread(scale, x.shape), spread(z, x.shape).float(), grad.float()
    scaled = x.float() / step
    slope = (scaled.round() - scaled) * inside
    slope = torch.where(below, qmin - offset, torch.where(above, qmax - offset, slope))
    ds = torch.where(x.float().isnan(), 0.0, grad32 * slope)
    dz = torch.where(below | above, -grad32 * step, 0.0)
    largest = grad32.abs().amax().item() if grad.numel() else 0.0
    largest = largest if math.isfinite(largest) else FLOAT32_MAX
    widest = scale.abs().amax().item() if scale.numel() else 0.0
    grad_scale = order_free_sum(ds, scale.shape, largest * (qmax - qmin))
    grad_zero_point = order_free_sum(dz, scale.shape, largest * widest)
    grad_x = torch.empty_like(x).copy_(torch.where(inside, grad32, 0.0))
    factor = torch.tensor(grad_factor, dtype=torch.float32)
    return grad_x, grad_scale * factor, grad_zero_point * factor


def order_free_sum(terms: Tensor, shape: torch.Size, bound: float) -> Tensor:
    """Sum float32 terms of magnitude up to ``bound`` over blocks, the same in any order.

    Each term is first rounded to a grid so coarse that every partial sum is exact in float64, so
    neither threads, vector width nor memory format can change a bit. With n terms the grid is
    n * bound * 2^-52, finer than float32 for n up to 2^28.

    Source: Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", ARITH 2013.
    """
    terms_per_block = max(terms.numel() // max(math.prod(shape), 1), 1)
    _, exponent = math.frexp(terms_per_block * bound)
    anchor = math.ldexp(1.5, exponent)
    return block_sum((terms.double() + anchor) - anchor, shape).float()
