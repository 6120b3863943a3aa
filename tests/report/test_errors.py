"""Sums of errors, whatever the values are and wherever they lie in memory."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.report.errors import error_between, noise_between
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS, QUICK, float_tensors, shapes


@QUICK
@given(st.data(), st.sampled_from(FLOAT_DTYPES), *[st.sampled_from(list(MEMORY_FORMATS))] * 2)
def test_sums_are_those_of_the_formula(
    data: st.DataObject, dtype: torch.dtype, one: str, other: str
) -> None:
    """Every sum is that of float64, for each dtype and any two memory formats."""
    shape = data.draw(shapes(max_dims=4, min_side=1))
    y = MEMORY_FORMATS[one](data.draw(float_tensors(shape, specials=())).to(dtype))
    found = MEMORY_FORMATS[other](data.draw(float_tensors(shape, specials=())).to(dtype))
    error = error_between(y, found)
    a, b = y.double(), found.double()
    assert error.signal == pytest.approx(float((a * a).sum()), rel=1e-12)
    assert error.noise == pytest.approx(float(((a - b) ** 2).sum()), rel=1e-12)
    assert error.power == pytest.approx(float((b * b).sum()), rel=1e-12)
    product = float((a * b).sum())
    assert error.product == pytest.approx(product, abs=1e-12 * (error.signal + error.power))
    assert error.largest == float((a - b).abs().max())
    assert error.elements == y.numel()
    assert noise_between(y, found) == pytest.approx(error.noise, rel=1e-12)


def test_many_pieces_are_one_tensor() -> None:
    """A tensor of more values than are summed at once has the error of all of them."""
    y = torch.arange(200_000).float().reshape(2, 1000, 100).transpose(0, 2)
    error = error_between(y, y + 0.5)
    assert error.noise == pytest.approx(50_000.0, rel=1e-12)
    assert (error.largest, error.elements) == (0.5, 200_000)


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_the_same_odd_values_are_no_error(odd: float) -> None:
    """Both infinite, or both NaN: the rest is compared, as where a mask is infinite."""
    y = torch.tensor([odd, 3.0, 4.0])
    error = error_between(y, torch.tensor([odd, 3.0, 4.5]))
    assert (error.signal, error.noise) == pytest.approx((25.0, 0.25), rel=1e-12)
    assert (error.largest, error.elements) == (0.5, 3)
    assert noise_between(y, y) == 0.0


@pytest.mark.parametrize("pair", [(1.0, math.inf), (math.nan, 1.0), (math.inf, -math.inf)])
def test_one_odd_value_is_an_infinite_error(pair: tuple[float, float]) -> None:
    """It is never NaN, and the SQNR says that nothing is left."""
    y, found = (torch.tensor([value, 2.0]) for value in pair)
    error = error_between(y, found)
    assert error.noise == error.largest == noise_between(y, found) == math.inf
    assert error.sqnr == -math.inf


def test_what_cannot_be_compared() -> None:
    """Integers, numbers and tensors of two shapes have no error; of tuples the floats have."""
    x = torch.ones(3)
    assert error_between(x.long(), x.long()) is None
    assert error_between(3, 4) is None
    assert error_between(x, torch.ones(4)) is None
    pair: tuple[Tensor, ...] = (x, x.long())
    assert error_between(pair, (x + 1, x.long())).noise == 3.0


def test_empty() -> None:
    """Nothing differs in a tensor without values."""
    error = error_between(torch.ones(0, 3), torch.ones(0, 3))
    assert (error.elements, error.noise) == (0, 0.0)
