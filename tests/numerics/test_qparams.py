"""From a range to scale and zero point, against exact fractions."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given

from halfstep.numerics import ops
from halfstep.numerics.qparams import LARGEST, SMALLEST_SCALE, choose_float_qparams
from halfstep.spec import QDType, int8, int16, uint8
from tests.strategies import QUICK, THOROUGH, any_float32, dtypes

Range = tuple[float, float]


def chosen(lo: float, hi: float, dtype: QDType, *, symmetric: bool) -> tuple[float, int]:
    """What ``choose_qparams`` gives for one range."""
    bounds = torch.tensor([lo]), torch.tensor([hi])
    scale, zero_point = ops.choose_qparams(*bounds, dtype.qmin, dtype.qmax, symmetric)
    assert (scale.dtype, zero_point.dtype) == (torch.float32, torch.int32)
    return scale.item(), int(zero_point.item())


def finite(value: float) -> Fraction:
    """NaN as 0, an infinity as the largest float32."""
    if math.isnan(value):
        return Fraction(0)
    return Fraction(max(-LARGEST, min(LARGEST, value)))


def exact_step(lo: float, hi: float, dtype: QDType, *, symmetric: bool) -> Fraction:
    """The step by the definition, in exact arithmetic."""
    low, high = min(finite(lo), Fraction(0)), max(finite(hi), Fraction(0))
    if symmetric:
        step = max(low / dtype.qmin, high / dtype.qmax)
    else:
        step = (high - low) / (dtype.qmax - dtype.qmin)
    if step == 0:
        return Fraction(1)
    return max(Fraction(SMALLEST_SCALE), min(Fraction(LARGEST), step))


@THOROUGH
@given(any_float32(), any_float32(), dtypes(), st.booleans())
@example(math.nan, math.nan, int8, False)
@example(-math.inf, math.inf, uint8, False)
@example(-3.4e38, 3.4e38, int16, False)
@example(-3.4e38, 3.4e38, int8.within(0, 1), False)
@example(1e-45, -1e-45, int8, True)
def test_a_scale_is_never_bad(lo: float, hi: float, dtype: QDType, symmetric: bool) -> None:  # noqa: FBT001  # drawn
    """Any range at all, even reversed, gives a finite scale >= 2^-126 and a code as zero point."""
    symmetric = symmetric and dtype.qmin < 0 < dtype.qmax
    scale, zero_point = chosen(lo, hi, dtype, symmetric=symmetric)
    assert SMALLEST_SCALE <= scale <= LARGEST
    assert dtype.qmin <= zero_point <= dtype.qmax
    assert not symmetric or zero_point == 0


@THOROUGH
@given(any_float32(), any_float32(), dtypes(), st.booleans())
def test_the_definition_in_fractions(lo: float, hi: float, dtype: QDType, symmetric: bool) -> None:  # noqa: FBT001  # drawn
    """Scale is the exact step rounded to float32, zero point qmin - rne(lo / step), clamped.

    The step is computed in float64 first. That may move the scale only where the exact step lies
    within 2^-50 of itself of a float32 tie, and the zero point only within 2^-18 of a tie.
    """
    symmetric = symmetric and dtype.qmin < 0 < dtype.qmax
    scale, zero_point = chosen(lo, hi, dtype, symmetric=symmetric)
    step = exact_step(lo, hi, dtype, symmetric=symmetric)
    assert abs(Fraction(scale) - step) <= step * Fraction(1, 2**24) * (1 + Fraction(1, 2**20))
    if symmetric:
        return
    code = dtype.qmin - min(finite(lo), Fraction(0)) / step
    near = {round(code - Fraction(1, 2**18)), round(code), round(code + Fraction(1, 2**18))}
    assert zero_point in {max(dtype.qmin, min(dtype.qmax, candidate)) for candidate in near}


@QUICK
@given(any_float32(), any_float32(), dtypes(16))
def test_the_range_is_covered(lo: float, hi: float, dtype: QDType) -> None:
    """The first and the last code stand for values at most half a step inside [lo, hi]."""
    scale, zero_point = chosen(lo, hi, dtype, symmetric=False)
    step = Fraction(scale)
    if step in {Fraction(LARGEST), Fraction(SMALLEST_SCALE)}:
        return
    low, high = min(finite(lo), Fraction(0)), max(finite(hi), Fraction(0))
    # Half a step from the rounded zero point, and the rounding of scale times the code.
    slack = step / 2 + (high - low) * Fraction(1, 2**23)
    assert (dtype.qmin - zero_point) * step <= low + slack
    assert (dtype.qmax - zero_point) * step >= high - slack


@pytest.mark.parametrize(
    ("bounds", "dtype", "symmetric", "expected"),
    [
        ((-1.0, 1.0), int8, False, (2 / 255, 0)),
        ((0.0, 2.55), uint8, False, (0.01, 0)),
        ((1.0, 2.55), uint8, False, (0.01, 0)),
        ((-2.55, -1.0), uint8, False, (0.01, 255)),
        ((-1.27, 1.0), int8, True, (1.27 / 128, 0)),
        ((-1.0, 1.27), int8, True, (0.01, 0)),
        ((-1.27, 1.0), int8.within(-127, 127), True, (0.01, 0)),
        ((0.0, 0.0), int8, False, (1.0, -128)),
        ((0.0, 0.0), int8, True, (1.0, 0)),
        ((-3e38, 3e38), int8, False, (6e38 / 255, 0)),
        ((0.0, 1e-45), int8, False, (2.0**-126, -128)),
    ],
)
def test_known_ranges(
    bounds: Range, dtype: QDType, *, symmetric: bool, expected: tuple[float, int]
) -> None:
    """Ranges whose scale and zero point can be told by hand; 0 is always in the range."""
    scale, zero_point = chosen(*bounds, dtype, symmetric=symmetric)
    assert scale == torch.tensor(expected[0], dtype=torch.float64).float().item()
    assert zero_point == expected[1]


@QUICK
@given(st.lists(st.tuples(any_float32(), any_float32()), max_size=8), dtypes())
def test_ranges_do_not_mix(ranges: list[Range], dtype: QDType) -> None:
    """Many ranges at once, in any shape, give what each gives alone."""
    lo, hi = torch.tensor(ranges, dtype=torch.float32).reshape(-1, 2).unbind(1)
    shape = (1, len(ranges), 1)
    many = ops.choose_qparams(lo.view(shape), hi.view(shape), dtype.qmin, dtype.qmax, False)
    assert many[0].shape == many[1].shape == shape
    for index, (low, high) in enumerate(ranges):
        one = chosen(low, high, dtype, symmetric=False)
        assert (many[0].flatten()[index].item(), many[1].flatten()[index].item()) == one


@THOROUGH
@given(any_float32(), any_float32(), dtypes(8))
def test_the_float_zero_point_form_is_never_bad(lo: float, hi: float, dtype: QDType) -> None:
    """Any range gives a normal positive scale and a finite float zero point."""
    bounds = torch.tensor([lo]), torch.tensor([hi])
    scale, zero_point = choose_float_qparams(*bounds, dtype.qmin, dtype.qmax)
    assert (scale.dtype, zero_point.dtype) == (torch.float32, torch.float32)
    assert SMALLEST_SCALE <= scale.item() <= LARGEST
    assert zero_point.isfinite().all()


def test_the_float_zero_point_form_keeps_the_range() -> None:
    """[lo, hi] is not widened to hold 0: lo gets the first code and hi the last."""
    lo, hi = torch.tensor([10.0]), torch.tensor([25.0])
    scale, zero_point = choose_float_qparams(lo, hi, 0, 15)
    assert (scale.item(), zero_point.item()) == (1.0, -10.0)
    q = ops.quantize(torch.cat([lo, hi]), scale, zero_point, 0, 15, torch.uint8)
    assert q.tolist() == [0, 15]
