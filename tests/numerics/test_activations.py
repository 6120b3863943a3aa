"""Sigmoid and tanh: near to the true ones, and the same bits wherever a value lies."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from halfstep.numerics.activations import exp_minus_one, sigmoid, tanh
from tests.assertions import assert_same_bits

BOTH = pytest.mark.parametrize(
    ("own", "true"), [(sigmoid, torch.sigmoid), (tanh, torch.tanh)], ids=["sigmoid", "tanh"]
)


def floats(low: float, high: float, count: int = 200_000) -> Tensor:
    """Float32 numbers spread over all exponents between two positive ones, with both signs."""
    first, last = (torch.tensor(x).view(torch.int32).item() for x in (low, high))
    bits = torch.linspace(first, last, count, dtype=torch.float64).to(torch.int32)
    x = bits.view(torch.float32)
    return torch.cat([x, -x])


def units_off(found: Tensor, true: Tensor) -> float:
    """The greatest distance in units in the last place."""
    step = torch.from_numpy(np.spacing(true.abs().float().numpy())).double()
    return float(((found.double() - true).abs() / step).max())


@BOTH
def test_within_three_units(
    own: Callable[[Tensor], Tensor], true: Callable[[Tensor], Tensor]
) -> None:
    """Over every magnitude from the subnormal numbers to 87."""
    x = floats(1e-40, 87.0)
    assert units_off(own(x), true(x.double())) < 3


def test_the_exponential() -> None:
    """e^v - 1 has a small relative error near zero as well."""
    v = -floats(1e-40, 87.0)[:200_000]
    assert units_off(exp_minus_one(v), torch.expm1(v.double())) < 1


@BOTH
@pytest.mark.parametrize("size", [1, 3, 7, 8, 15, 16, 31, 33, 1001])
def test_bits_do_not_depend_on_the_place(
    own: Callable[[Tensor], Tensor], true: Callable[[Tensor], Tensor], size: int
) -> None:
    """A value alone, in a row of any size, at any offset, and in strided memory is the same."""
    x = torch.randn(2 * size + 3) * 4
    whole = own(x)
    assert_same_bits(own(x[:size]), whole[:size])
    assert_same_bits(own(x[3 : 3 + size]), whole[3 : 3 + size])
    assert_same_bits(own(x[::2]), whole[::2])
    assert_same_bits(torch.stack([own(one) for one in x[:9]]), whole[:9])


def test_odd_values() -> None:
    """NaN stays NaN, infinities are the limits, and -0.0 keeps its sign."""
    x = torch.tensor([math.nan, math.inf, 0.0, -0.0, 1e-45])
    assert_same_bits(sigmoid(x), torch.tensor([math.nan, 1.0, 0.5, 0.5, 0.5]))
    assert_same_bits(tanh(x), torch.tensor([math.nan, 1.0, 0.0, -0.0, 1e-45]))
    least = sigmoid(torch.tensor([-math.inf, -1e30, -87.0]))
    assert least.unique().numel() == 1
    assert 0 < least[0] < 2e-38
    assert tanh(torch.tensor(-math.inf)) == -1


def test_the_formula_in_another_hand() -> None:
    """NumPy's float32, one operation at a time, gives the bits that the page of formulas says."""
    x = (torch.randn(999) * 8).numpy()
    f = np.float32
    v = np.maximum(-np.abs(x), f(-87))
    n = np.rint(v * f(1 / math.log(2)))
    r = (v - n * f(355 / 512)) - n * f(math.log(2) - 355 / 512)
    p = np.full_like(r, f(1 / 5040))
    for k in (720, 120, 24, 6, 2):
        p = p * r + f(1 / k)
    s = (p * r) * r + r
    power = np.ldexp(f(1), n.astype(np.int32))
    e = s * power + power
    wanted = np.where(x < 0, e, f(1)) / (f(1) + e)
    assert_same_bits(sigmoid(torch.from_numpy(x)), torch.from_numpy(wanted))
