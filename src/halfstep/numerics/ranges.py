"""Scale and zero point for values at hand."""

import math
from collections.abc import Sequence

from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import ops
from halfstep.numerics.affine import nan_error
from halfstep.numerics.checks import has_values
from halfstep.numerics.qparams import choose_float_qparams
from halfstep.spec import QSpec

NAN_POLICIES = ("raise", "ignore")


def qparams_for_range(lo: Tensor, hi: Tensor, spec: QSpec) -> tuple[Tensor, Tensor]:
    """Scale and zero point for the range [lo, hi], both of the shape of ``scale``."""
    if spec.float_zero_point:
        return choose_float_qparams(lo, hi, spec.qmin, spec.qmax)
    scale, zero_point = ops.choose_qparams(lo, hi, spec.qmin, spec.qmax, spec.symmetric)
    return scale, zero_point


def qparams_for_values(x: Tensor, spec: QSpec, nan: str = "raise") -> tuple[Tensor, Tensor]:
    """Scale and zero point for the range of the finite values of x; infinities will saturate.

    Raises ``NonFiniteError`` for NaN unless ``nan="ignore"``.
    """
    shape = spec.granularity.scale_shape(tuple(x.shape))
    lo, hi = ops.min_max(x, shape)
    if nan not in NAN_POLICIES:
        raise ArgumentError(f"nan={nan!r} is not a policy: use one of {NAN_POLICIES}")
    if not has_values(lo) or bool((lo.isfinite() & hi.isfinite()).all()):
        return qparams_for_range(lo, hi, spec)
    if nan == "raise" and bool(lo.isnan().any()):
        raise nan_error(x)
    lo, hi = finite_range(x, shape)
    empty = lo > hi  # a block that holds no finite value
    return qparams_for_range(lo.masked_fill(empty, 0.0), hi.masked_fill(empty, 0.0), spec)


def finite_range(x: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The least and greatest finite float32 of each block; inf and -inf where there is none."""
    values = x.float()
    infinite = ~values.isfinite()
    lo, _ = ops.min_max(values.masked_fill(infinite, math.inf), shape)
    _, hi = ops.min_max(values.masked_fill(infinite, -math.inf), shape)
    return lo, hi
