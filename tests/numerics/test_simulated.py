"""Fake-quantize as users call it."""

import math
import re

import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.numerics import fake_quantize, learnable_fake_quantize, ops
from halfstep.numerics.ranges import qparams_for_values
from halfstep.spec import PerChannel, PerGroup, QSpec, int4, int8
from tests.assertions import assert_same_bits, assert_same_layout
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS, QUICK, Case, cases


@QUICK
@given(cases())
def test_given_qparams_are_used(case: Case) -> None:
    """With scale and zero point it is the operator, with and without a gradient."""
    args = (case.x, case.scale, case.zero_point)
    wanted = ops.fake_quantize(*args, *case.bounds)
    y = fake_quantize(case.x, case.spec, scale=case.scale, zero_point=case.zero_point)
    assert_same_bits(y, wanted)
    x = case.x.detach().requires_grad_()
    y = fake_quantize(x, case.spec, scale=case.scale, zero_point=case.zero_point)
    assert_same_bits(y.detach(), wanted)
    assert y.requires_grad


@QUICK
@given(cases(specials=(0.0,)))
def test_qparams_come_from_the_range_of_x(case: Case) -> None:
    """Without scale and zero point, those of x's own range."""
    scale, zero_point = qparams_for_values(case.x, case.spec)
    assert_same_bits(
        fake_quantize(case.x, case.spec),
        ops.fake_quantize(case.x, scale, zero_point, *case.bounds),
    )


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@pytest.mark.parametrize("layout", MEMORY_FORMATS)
def test_shape_dtype_and_layout_stay(dtype: torch.dtype, layout: str) -> None:
    """The result looks like x from outside."""
    x = MEMORY_FORMATS[layout](torch.randn(2, 4, 6, 6).to(dtype))
    for spec in (QSpec(int8), QSpec(int8, PerChannel(1)), QSpec(int4, PerGroup(1, 2))):
        y = fake_quantize(x, spec)
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        assert_same_layout(y, x)


def test_no_gradient_where_none_is_wanted() -> None:
    """Under no_grad, and for x without a gradient, no mask is kept."""
    x = torch.randn(4, requires_grad=True)
    with torch.no_grad():
        assert not fake_quantize(x, int8).requires_grad
    assert not fake_quantize(x.detach(), int8).requires_grad


def test_it_works_on_meta() -> None:
    """A model can be planned without memory."""
    y = fake_quantize(torch.empty(2, 3, device="meta"), int8, axis=0)
    assert (y.device.type, y.shape) == ("meta", (2, 3))
    assert fake_quantize(torch.empty(2, 3, device="meta"), int8, scale=0.1, zero_point=0).is_meta


def test_learning_recovers_a_step() -> None:
    """LSQ trains a scale that is far too large to near the best one for the data."""
    x = torch.randn(4096)
    scale = torch.tensor([2.0], requires_grad=True)
    spec = QSpec(int4, symmetric=True)
    optimizer = torch.optim.Adam([scale], lr=0.05)

    def loss(step: Tensor) -> Tensor:
        y = learnable_fake_quantize(x, spec, scale=step, zero_point=torch.zeros(1))
        return (y - x).square().mean()

    for _ in range(150):
        optimizer.zero_grad()
        loss(scale).backward()
        optimizer.step()
    best = min(loss(torch.tensor([step / 100])).item() for step in range(10, 200))
    assert loss(scale).item() < 1.05 * best


def test_learnable_takes_floats_only() -> None:
    """The learnable form refuses what the plain one refuses."""
    with pytest.raises(ArgumentTypeError, match="learnable_fake_quantize takes floats"):
        learnable_fake_quantize(
            torch.ones(2).int(), QSpec(int8), scale=torch.ones(1), zero_point=torch.zeros(1)
        )


def test_learnable_takes_a_dtype_for_a_spec() -> None:
    """An integer dtype means one scale for the whole tensor, as everywhere."""
    x, step, zero = torch.randn(3, 4), torch.full((1, 1), 0.1), torch.zeros(1, 1)
    wanted = learnable_fake_quantize(x, QSpec(int8), scale=step, zero_point=zero)
    for spec in (int8, torch.int8):
        assert_same_bits(learnable_fake_quantize(x, spec, scale=step, zero_point=zero), wanted)
    axis = QSpec(int8, PerChannel(-1))
    with pytest.raises(ArgumentError, match=r"of shape \(1, 4\)"):
        learnable_fake_quantize(x, axis, scale=step, zero_point=zero)


@pytest.mark.parametrize("scale", [0.0, -0.1, math.nan, math.inf, 1e-40])
def test_learnable_refuses_what_is_no_step(scale: float) -> None:
    """A scale that no fake-quantize accepts is not trained either."""
    steps = torch.tensor([[0.1], [scale]], requires_grad=True)
    text = re.escape(f"scale={torch.tensor(scale).item():g} is not a step")
    with pytest.raises(ArgumentError, match=text):
        learnable_fake_quantize(
            torch.ones(2, 3), QSpec(int8, PerChannel(0)), scale=steps, zero_point=torch.zeros(2, 1)
        )


def test_learnable_refuses_zero_points_without_an_integer() -> None:
    """NaN rounds to no code, and the float-zero-point form to none by design."""
    x, step = torch.ones(2), torch.ones(1)
    with pytest.raises(ArgumentError, match="zero_point=nan is not finite"):
        learnable_fake_quantize(x, int8, scale=step, zero_point=torch.tensor([math.nan]))
    spec = QSpec(int8, float_zero_point=True)
    with pytest.raises(ArgumentError, match="leave out float_zero_point"):
        learnable_fake_quantize(x, spec, scale=step, zero_point=torch.zeros(1))


def test_learnable_is_traced_without_a_look_at_values() -> None:
    """On meta, and in one compiled graph, the scale is taken as it is."""
    meta = torch.ones(2, device="meta")
    assert learnable_fake_quantize(meta, int8, scale=meta[:1], zero_point=meta[:1]).is_meta
    step, zero = torch.full((1,), 0.1), torch.zeros(1)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(x: Tensor) -> Tensor:
        return learnable_fake_quantize(x, int8, scale=step, zero_point=zero)

    x = torch.randn(8)
    assert_same_bits(compiled(x), learnable_fake_quantize(x, int8, scale=step, zero_point=zero))
