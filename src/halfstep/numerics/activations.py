"""Sigmoid and tanh from additions, products and one division, all rounded to float32.

Torch's own have other last bits in the body of a vector than in its tail, so what they return for a
row depends on where the row lies. These are the same for every size, thread number and device, and
a kernel can give the same bits.

With n = rne(v * (1 / ln 2)) and the rest ``r = (v - n * C1) - n * C2``, both terms of ln 2:

    p = ((((1/7! * r + 1/6!) * r + 1/5!) * r + 1/4!) * r + 1/3!) * r + 1/2!
    s = (p * r) * r + r                        e^r - 1
    m = s * 2^n + (2^n - 1)                    e^v - 1, for -87 <= v <= 0
    e = s * 2^n + 2^n                          e^v
"""

import math

import torch
from torch import Tensor

_LOG2_E = 1 / math.log(2)
# ln 2 in two parts: the first has 9 bits, so that its products with n are exact.
_LN2_HIGH = 355 / 512
_LN2_LOW = math.log(2) - _LN2_HIGH
# Rounded to float32 where they meet one; innermost first.
_FACTORS = tuple(1 / math.factorial(k) for k in range(7, 1, -1))
_LEAST = -87.0  # e^v is a normal float32 down to here


def exp_minus_one(v: Tensor) -> Tensor:
    """e^v - 1 for float32 v <= 0, within a unit in the last place; below -87 as at -87.

    >>> import torch
    >>> from halfstep.numerics.activations import exp_minus_one
    >>> exp_minus_one(torch.tensor([0.0, -1.0, -200.0]))
    tensor([ 0.0000, -0.6321, -1.0000])
    """
    small, power = _split(v)
    return small * power + (power - 1.0)


def _split(v: Tensor) -> tuple[Tensor, Tensor]:
    """(e^r - 1, 2^n) with v = n * ln 2 + r; NaN stays NaN in the first."""
    v = torch.where(v < _LEAST, _LEAST, v)
    n = (v * _LOG2_E).round()
    r = (v - n * _LN2_HIGH) - n * _LN2_LOW
    series = torch.full_like(r, _FACTORS[0])
    for factor in _FACTORS[1:]:
        series = series * r + factor
    small = (series * r) * r + r
    exponent = n.nan_to_num(0.0).to(torch.int32) + 127
    return small, (exponent << 23).view(torch.float32)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e) where x >= 0, else e / (1 + e), with e = e^-|x|, all float32.

    Within 3 units in the last place for x >= -87, and below as at -87.

    >>> import torch
    >>> from halfstep.numerics.activations import sigmoid
    >>> sigmoid(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([0.1192, 0.5000, 0.8808])
    """
    small, power = _split(-x.abs())
    e = small * power + power
    return torch.where(x < 0, e, 1.0) / (1.0 + e)


def tanh(x: Tensor) -> Tensor:
    """-m / (2 + m) with m = e^(-2|x|) - 1, and the sign of x, all float32.

    Within 3 units in the last place.

    >>> import torch
    >>> from halfstep.numerics.activations import tanh
    >>> tanh(torch.tensor([-1.0, 0.0, 0.5]))
    tensor([-0.7616,  0.0000,  0.4621])
    """
    m = exp_minus_one(-2.0 * x.abs())
    return torch.copysign(-m / (2.0 + m), x)
