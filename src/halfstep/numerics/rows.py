"""Quantizing while the model runs: every row, or every sample, gets qparams of its own."""

import math
from typing import TypeAlias

from torch import Tensor

from halfstep.numerics import affine, blocks, integer
from halfstep.numerics.ranges import finite_range, qparams_for_range
from halfstep.spec import QSpec

# Codes, scale and zero point.
Rows: TypeAlias = tuple[Tensor, Tensor, Tensor]


def quantize_rows(x: Tensor, spec: QSpec) -> Rows:
    """Codes, scale and zero point of x, each row quantized by the range of its own finite values.

    spec: ``PerToken()``, whose rows are the last dimension, or ``PerChannel(0)``, whose "rows" are
        samples; a format of at most 16 bits.

    Infinities saturate and widen no range. A row that holds NaN has a scale of NaN, so that
    whatever is computed from it is NaN; no other row is touched.

    >>> import halfstep as hs, torch
    >>> from halfstep.numerics.rows import quantize_rows
    >>> x = torch.tensor([[0.0, 2.55], [float("nan"), 1.0]])
    >>> codes, scale, zero_point = quantize_rows(x, hs.QSpec(hs.uint8, hs.PerToken()))
    >>> codes[0].tolist(), scale[1].item()
    ([0, 255], nan)
    """
    shape = spec.granularity.scale_shape(tuple(x.shape))
    lo, hi = blocks.min_max(x, shape)
    has_nan = lo.isnan()
    if not bool((lo.isfinite() & hi.isfinite()).all()):
        lo, hi = finite_range(x, shape)
        nothing = lo > hi  # a row without a finite value
        lo, hi = lo.masked_fill(nothing, 0.0), hi.masked_fill(nothing, 0.0)
    scale, zero_point = qparams_for_range(lo, hi, spec)
    codes = affine.quantize(x, scale, zero_point, spec.qmin, spec.qmax, spec.dtype.storage)
    return codes, scale.masked_fill(has_nan, math.nan), zero_point


def linear_rows(rows: Rows, w: Rows, bias: Tensor | None = None) -> Tensor:
    """Linear of quantized rows: float32, as ``integer.linear``."""
    return integer.linear(*rows, *w, bias)
