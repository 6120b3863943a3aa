"""Scale and zero point of a range; for a single scale in plain numbers, which is faster.

One number costs a tensor operation as much as a thousand do, and the formulas take a dozen. A
Python float is a float64, so ``one_scale`` has the bits of ``numerics.qparams.choose_qparams``.
"""

import torch
from torch import Tensor

from halfstep.numerics.qparams import LARGEST, SMALLEST_SCALE
from halfstep.numerics.ranges import qparams_for_range
from halfstep.spec import QSpec


def qparams_of(lo: Tensor, hi: Tensor, spec: QSpec) -> tuple[Tensor, Tensor]:
    """Scale and zero point for the finite range [lo, hi], both of its shape."""
    plain = lo.numel() == 1 and lo.is_cpu and not spec.float_zero_point
    if torch.compiler.is_compiling() or not plain:
        return qparams_for_range(lo, hi, spec)
    scale, zero_point = one_scale(lo.item(), hi.item(), spec)
    return torch.full_like(lo, scale), torch.full_like(lo, zero_point, dtype=torch.int32)


def one_scale(lo: float, hi: float, spec: QSpec) -> tuple[float, int]:
    """Scale and zero point for the finite range [lo, hi], in float64.

    See ``numerics.qparams.choose_qparams`` for the formulas.
    """
    lo, hi, qmin, qmax = min(lo, 0.0), max(hi, 0.0), spec.qmin, spec.qmax
    span = max(lo / qmin, hi / qmax) if spec.symmetric else (hi - lo) / (qmax - qmin)
    scale = 1.0 if span == 0 else min(max(span, SMALLEST_SCALE), LARGEST)
    zero_point = 0 if spec.symmetric else qmin - round(lo / scale)
    return scale, min(max(zero_point, qmin), qmax)
