"""From a range to scale and zero point, in plain PyTorch."""

import torch
from torch import Tensor

SMALLEST_SCALE = (
    2.0**-126
)  # the least normal float32: x / scale stays exact enough, 1 / scale finite
LARGEST = torch.finfo(torch.float32).max


def choose_qparams(
    lo: Tensor, hi: Tensor, qmin: int, qmax: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Scale (float32) and zero point (int32) for the range [lo, hi] widened to hold 0.

        affine:     scale = (hi - lo) / (qmax - qmin)
        symmetric:  scale = max(lo / qmin, hi / qmax)
        zero_point = clamp(qmin - rne(lo / scale), qmin, qmax), or 0

    Computed in float64. An empty range gives scale 1, NaN counts as 0 and Inf as the largest
    float32, so a scale is always a normal positive float32.
    """
    lo = lo.double().nan_to_num(0.0, LARGEST, -LARGEST).clamp(max=0.0)
    hi = hi.double().nan_to_num(0.0, LARGEST, -LARGEST).clamp(min=0.0)
    span = torch.maximum(lo / qmin, hi / qmax) if symmetric else (hi - lo) / (qmax - qmin)
    scale = torch.where(span == 0, 1.0, span.clamp(SMALLEST_SCALE, LARGEST))
    zero_point = torch.zeros_like(lo) if symmetric else qmin - (lo / scale).round()
    return scale.float(), zero_point.clamp(qmin, qmax).to(torch.int32)


def choose_float_qparams(lo: Tensor, hi: Tensor, qmin: int, qmax: int) -> tuple[Tensor, Tensor]:
    """Scale and float zero point, both float32, of the float-zero-point form.

        scale = (hi - lo) / (qmax - qmin)          zero_point = qmin - lo / scale

    The range is not widened to hold 0, so 0 is not exact. Computed in float64; an empty range
    gives scale 1.
    """
    lo = lo.double().nan_to_num(0.0, LARGEST, -LARGEST)
    hi = hi.double().nan_to_num(0.0, LARGEST, -LARGEST)
    span = (hi - lo) / (qmax - qmin)
    scale = torch.where(span == 0, 1.0, span.clamp(SMALLEST_SCALE, LARGEST))
    return scale.float(), (qmin - lo / scale).clamp(-LARGEST, LARGEST).float()
