"""Scale and zero point of a single range, in plain numbers: the bits of the formulas on tensors."""

import hypothesis.strategies as st
import torch
from hypothesis import example, given

from halfstep.numerics.ranges import qparams_for_range
from halfstep.observe.one_scale import qparams_of
from halfstep.spec import QSpec, int2, int4, int8, int16, int32, uint2, uint8, uint16
from tests.assertions import assert_same_bits
from tests.strategies import QUICK

LARGEST = torch.finfo(torch.float32).max
SPECS = (
    *(QSpec(dtype) for dtype in (int2, int4, int8, int16, int32, uint2, uint8, uint16)),
    *(QSpec(dtype, symmetric=True) for dtype in (int2, int8, int16)),
    QSpec(int8, symmetric=True, narrow_range=True),
    QSpec(int8.within(-5, 3)),
    QSpec(uint8, float_zero_point=True),
)
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@QUICK
@given(NUMBERS, NUMBERS, st.sampled_from(SPECS), st.integers(0, 4))
@example(0.0, 0.0, SPECS[0], 2)
@example(-LARGEST, LARGEST, SPECS[2], 2)
@example(-1e-45, 1e-45, SPECS[2], 0)
@example(-0.0, 0.0, SPECS[2], 1)
@example(3.0, 6.0, SPECS[-1], 2)
@example(-1e-45, LARGEST, SPECS[4], 2)
def test_equals_the_formula_on_tensors(a: float, b: float, spec: QSpec, ndim: int) -> None:
    """Scale, zero point, dtypes and shapes are those of the operator, in every bit."""
    lo, hi = (torch.full((1,) * ndim, end) for end in sorted((a, b)))
    for ours, theirs in zip(qparams_of(lo, hi, spec), qparams_for_range(lo, hi, spec), strict=True):
        assert_same_bits(ours, theirs)
