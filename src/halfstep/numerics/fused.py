"""What follows the scaled sum inside one integer op: a residual, then an activation.

y = fma(qr - zr, sr, y)                    one rounding
y = clamp(y, lo, hi)                       bounds may be None; NaN stays NaN
"""

import torch
from torch import Tensor

from halfstep.numerics.affine import spread


def add_residual(y: Tensor, q: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """fma(q - zero_point, scale, y): the product and the sum together are rounded once.

    y float32; q, scale and zero_point as for ``dequantize``, of at most 16 bits.
    """
    steps = q.double() - spread(zero_point, q.shape).double()
    return sum_rounded_once(steps * spread(scale, q.shape).double(), y)


def sum_rounded_once(a: Tensor, b: Tensor) -> Tensor:
    """The float32 nearest to a + b, for a float64 and b float32: as if the sum had all digits.

    Rounding to float64 and from there to float32 would round twice, which differs where the first
    rounding makes a tie. So the float64 sum is rounded to odd: where it is not exact, and its last
    bit is 0, its neighbour on the side of the exact sum is taken. No tie comes about in that way,
    and float64 has more than two digits to spare (Boldo and Melquiond, "Emulation of a FMA and
    Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd", 2008).

    >>> import torch
    >>> from halfstep.numerics.fused import sum_rounded_once
    >>> tie = torch.tensor([1 + 2**-24], dtype=torch.float64)
    >>> beyond = sum_rounded_once(tie, torch.tensor([2.0**-80]))
    >>> beyond.item() == 1 + 2**-23, (tie + 2.0**-80).float().item()
    (True, 1.0)
    """
    a, b = torch.broadcast_tensors(a, b.double())
    total = a + b
    shadow = total - a  # Knuth's two-sum: total + missing is the exact sum
    missing = (a - (total - shadow)) + (b - shadow)
    bits = total.contiguous().view(torch.int64)
    missing = missing.contiguous()
    moves = (missing != 0) & missing.isfinite() & (bits & 1 == 0)
    away = (missing > 0) == (total.contiguous() > 0)  # one up in the bits is away from zero
    odd = torch.where(moves, bits + torch.where(away, 1, -1), bits).view(torch.float64)
    return torch.empty_like(total, dtype=torch.float32).copy_(odd)


def clamp(y: Tensor, lo: float | None, hi: float | None) -> Tensor:
    """Lo where y < lo, hi where y > hi, else y: NaN stays NaN, and -0.0 stays -0.0.

    >>> import torch
    >>> from halfstep.numerics.fused import clamp
    >>> clamp(torch.tensor([-1.0, 0.5, 9.0]), 0.0, 6.0)
    tensor([0.0000, 0.5000, 6.0000])
    """
    if lo is not None:
        y = torch.where(y < lo, lo, y)
    return y if hi is None else torch.where(y > hi, hi, y)
