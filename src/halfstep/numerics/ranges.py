"""Scale and zero point for values at hand."""

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import ops
from halfstep.numerics.affine import nan_error
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
    if torch.compiler.is_compiling() or lo.is_meta or bool((lo.isfinite() & hi.isfinite()).all()):
        return qparams_for_range(lo, hi, spec)
    if nan == "raise" and bool(lo.isnan().any()):
        raise nan_error(x)
    # 0 is in every range, so a value put in place of those that are not finite changes nothing.
    finite = x.float()
    finite = finite.masked_fill(~finite.isfinite(), 0.0)
    lo, hi = ops.min_max(finite, shape)
    return qparams_for_range(lo, hi, spec)
