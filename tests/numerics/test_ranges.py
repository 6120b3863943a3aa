"""Scale and zero point for values at hand."""

import math

import pytest
import torch
from hypothesis import given

from halfstep.errors import ArgumentError, NonFiniteError
from halfstep.numerics import ops
from halfstep.numerics.ranges import qparams_for_range, qparams_for_values
from halfstep.spec import PerChannel, PerGroup, QSpec, int8, uint8
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, Case, cases, repeated


@QUICK
@given(cases(float_zero_point=False, specials=(0.0, 1e-45, 1.2e-38)))
def test_values_come_back_within_half_a_step(case: Case) -> None:
    """With qparams of x's own range every x is at most half a step off.

    The slack is float32's: one rounding each of scale, of x / scale and of the result, relative to
    the range that shares the scale; see ``test_affine`` for the two that do not come from here.
    """
    spec, shape = case.spec, tuple(case.x.shape)
    scale, zero_point = qparams_for_values(case.x, spec)
    assert scale.shape == zero_point.shape == spec.granularity.scale_shape(shape)
    q = ops.quantize(case.x, scale, zero_point, *case.bounds, case.storage)
    back = ops.dequantize(q, scale, zero_point, torch.float32).double()
    x, step = case.x.float().double(), repeated(scale, shape).double()
    slack = (x.abs() + back.abs()) * 2.0**-23 + step * 2.0**-24
    assert ((x - back).abs() <= step / 2 + slack).all()


def test_infinities_do_not_widen_the_range() -> None:
    """The range is that of the finite values; infinities then saturate."""
    finite = torch.tensor([[1.0, -2.0, 0.5], [4.0, 0.0, 0.0]])
    x = torch.cat([finite, torch.tensor([[math.inf], [-math.inf]])], 1)
    spec = QSpec(int8, PerChannel(0))
    for got, wanted in zip(
        qparams_for_values(x, spec), qparams_for_values(finite, spec), strict=True
    ):
        assert_same_bits(got, wanted)


def test_what_is_not_finite_does_not_pull_a_range_to_zero() -> None:
    """In the float-zero-point form 0 is in no range of itself: [100, 200] stays [100, 200]."""
    finite = torch.tensor([[100.0, 200.0], [-7.0, -3.0], [0.0, 0.0]])
    odd = torch.tensor([[math.inf, math.nan], [-math.inf, math.nan], [math.nan, math.inf]])
    x = torch.cat([finite, odd], 1)
    x[2] = odd[2, 0]  # nothing finite: an empty range
    spec = QSpec(uint8, PerChannel(0), float_zero_point=True)
    for got, wanted in zip(
        qparams_for_values(x, spec, "ignore"), qparams_for_values(finite, spec), strict=True
    ):
        assert_same_bits(got, wanted)


def test_nan_is_refused_or_left_out() -> None:
    """NaN raises, with the count, or is left out of the range; other policies do not exist."""
    x = torch.tensor([1.0, math.nan, -3.0])
    with pytest.raises(NonFiniteError, match="x holds 1 NaN in 3 values"):
        qparams_for_values(x, QSpec(int8))
    scale, _ = qparams_for_values(x, QSpec(int8), nan="ignore")
    assert scale.item() == torch.tensor(4 / 255).item()
    text = r"nan='skip' is not a policy: use one of \('raise', 'ignore'\)"
    with pytest.raises(ArgumentError, match=text):
        qparams_for_values(x, QSpec(int8), nan="skip")


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0)])
def test_empty_tensors_have_scale_1(shape: tuple[int, ...]) -> None:
    """A range without values is empty: scale 1, and the zero point of 0."""
    scale, zero_point = qparams_for_values(torch.empty(shape), QSpec(uint8))
    assert (scale.flatten().tolist(), zero_point.flatten().tolist()) == ([1.0], [0])


def test_each_group_has_its_own_range() -> None:
    """A scale sees only the elements that share it."""
    x = torch.tensor([[1.27, 0.0, 12.7, 0.0], [0.0, -0.127, 0.0, 0.0]])
    spec = QSpec(int8.within(-127, 127), PerGroup(1, 2), symmetric=True)
    scale, zero_point = qparams_for_values(x, spec)
    torch.testing.assert_close(scale, torch.tensor([[0.01, 0.1], [0.001, 1.0]]))
    assert not zero_point.any()


def test_a_spec_chooses_its_form() -> None:
    """The float-zero-point form keeps [lo, hi]; the integer form widens it to hold 0."""
    lo, hi = torch.tensor([10.0]), torch.tensor([265.0])
    scale, zero_point = qparams_for_range(lo, hi, QSpec(uint8, float_zero_point=True))
    assert (scale.item(), zero_point.item()) == (1.0, -10.0)
    scale, zero_point = qparams_for_range(lo, hi, QSpec(uint8))
    assert (scale.item(), zero_point.item()) == (torch.tensor(265 / 255).item(), 0)
