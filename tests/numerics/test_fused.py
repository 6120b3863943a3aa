"""The residual's single rounding against exact fractions; the clamp of an activation."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from halfstep.numerics.fused import add_residual, clamp, sum_rounded_once
from halfstep.spec import QDType
from tests.assertions import assert_same_bits
from tests.strategies import THOROUGH, any_float32

# Products of 17 and 24 bits that lie one part in 2^36 beside a power of two.
_BESIDE_A_TIE = (4097, 16_773_121)


def nearest(exact: Fraction) -> float:
    """The float32 nearest to a fraction, ties to the even one."""
    about = np.float32(float(exact))
    near = [np.nextafter(about, np.float32(way)) for way in (-math.inf, math.inf)]

    def distance(one: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1

    return float(min([about, *near], key=distance))


def fma(steps: int, scale: float, y: float) -> float:
    """``steps * scale + y`` with one rounding, by the operator."""
    zero = torch.tensor([40], dtype=torch.int32)
    q = torch.tensor([steps + 40], dtype=torch.int32)
    return add_residual(torch.tensor([y]), q, torch.tensor([scale]), zero).item()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("exponent", range(-60, 61, 12))
@pytest.mark.parametrize("odd", [0, 1])
def test_sums_beside_a_tie(sign: int, exponent: int, odd: int) -> None:
    """What float64 cannot tell from a tie is rounded by its exact value; rounding twice is not."""
    steps, mantissa = _BESIDE_A_TIE
    scale = math.ldexp(mantissa, exponent)
    y = math.ldexp((2**23 + odd) * sign, 37 + exponent)  # half of whose last bit is 2^36
    product = Fraction(steps) * Fraction(scale)
    for toward in (1, -1):
        assert fma(toward * steps, scale, y) == nearest(Fraction(y) + toward * product)
    # The even one of two: from above it is the tie itself that rounding twice goes back to.
    twice = np.float32(y + sign * float(product)).item()
    assert (twice == fma(sign * steps, scale, y)) == bool(odd)


@THOROUGH
@given(
    y=any_float32().filter(lambda y: abs(y) < 1e37),
    steps=st.integers(-65535, 65535),
    mantissa=st.integers(2**23, 2**24 - 1) | st.just(_BESIDE_A_TIE[1]),
    below=st.integers(-20, 60),
)
def test_any_sum_is_the_nearest_float(y: float, steps: int, mantissa: int, below: int) -> None:
    """Whatever the two terms, their sum is the float32 nearest to the exact one."""
    power = max(math.frexp(y)[1] - below - 24, -140)
    scale = torch.tensor(math.ldexp(mantissa, min(power, 80))).item()
    exact = Fraction(steps) * Fraction(scale) + Fraction(y)
    if abs(exact) < 3e38:
        assert fma(steps, scale, y) == nearest(exact)


def test_infinities_and_nan_go_through() -> None:
    """What is no number in y is none in the sum, and stays the same one."""
    y = torch.tensor([math.inf, -math.inf, math.nan, 0.0])
    found = sum_rounded_once(torch.ones(4, dtype=torch.float64), y)
    assert_same_bits(found, torch.tensor([math.inf, -math.inf, math.nan, 1.0]))


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16"])
def test_every_dtype_of_residual(name: str) -> None:
    """The outermost codes under the outermost zero points, and channels-last memory."""
    dtype = QDType.parse(name)
    codes = torch.tensor([dtype.qmin, dtype.qmax]).repeat(6).view(1, 3, 2, 2).to(dtype.storage)
    codes = codes.to(torch.int64).to(memory_format=torch.channels_last).to(dtype.storage)
    y = torch.randn(1, 3, 2, 2)
    for zero_point in (dtype.qmin, dtype.qmax):
        zero = torch.full((1, 1, 1, 1), zero_point, dtype=torch.int32)
        found = add_residual(y, codes, torch.full((1, 1, 1, 1), 0.1), zero)
        exact = (codes.double() - zero_point) * torch.tensor(0.1).double() + y.double()
        assert torch.equal(found, exact.float())


def test_clamp_keeps_nan_and_the_sign_of_zero() -> None:
    """Only what lies beyond a bound is replaced by it; either bound may be missing."""
    y = torch.tensor([math.nan, -0.0, -1.0, 7.0, math.inf])
    assert_same_bits(clamp(y, 0.0, 6.0), torch.tensor([math.nan, -0.0, 0.0, 6.0, 6.0]))
    assert_same_bits(clamp(y, None, 6.0), torch.tensor([math.nan, -0.0, -1.0, 6.0, 6.0]))
    assert_same_bits(clamp(y, 0.0, None), torch.tensor([math.nan, -0.0, 0.0, 7.0, math.inf]))
    assert_same_bits(clamp(y, None, None), y)
