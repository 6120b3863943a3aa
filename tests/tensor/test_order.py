"""What needs only the order of values runs on the integers and is exact."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given

import halfstep as hs
from halfstep import PerChannel, PerToken, QSpec, QTensor
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, qtensors, repeated
from tests.tensor.results import assert_scale_fits, single

EXACT: dict[str, Callable[[Any], Any]] = {
    "max": lambda t: t.max(),
    "min": lambda t: t.min(),
    "amax": lambda t: t.amax(-1),
    "sort": lambda t: t.sort(0).values,
    "topk": lambda t: t.topk(1, 0).values,
    "max along": lambda t: t.max(0).values,
    "argmax": lambda t: t.argmax(),
    "gt": lambda t: t > 0,
    "eq": lambda t: t == t.flip(0),
}


@given(q=qtensors(float_zero_point=False))
@QUICK
def test_relu(q: QTensor) -> None:
    """relu keeps format and qparams, and is relu of the floats in every bit."""
    result = single(q.relu())
    assert_scale_fits(result)
    assert result.spec == q.spec
    assert torch.equal(result.scale, q.scale)
    assert torch.equal(result.dequantize(), q.dequantize().relu())


@pytest.mark.parametrize("name", sorted(EXACT))
@given(q=qtensors(max_bits=16))
@QUICK
def test_order_is_that_of_the_floats(name: str, q: QTensor) -> None:
    """Per tensor or per channel, the result is that of the floats in every bit."""
    if not q.numel() or not q.ndim or q.dtype != torch.float32:
        return
    found, expected = EXACT[name](q), EXACT[name](q.dequantize())
    assert_same_bits(found.dequantize() if isinstance(found, QTensor) else found, expected)


@given(q=qtensors(max_bits=16, float_zero_point=False))
@QUICK
def test_clamp_is_within_half_a_step(q: QTensor) -> None:
    """Bounds take their nearest codes: no value is more than half a step from the clamped one."""
    low, high = -3.3 * float(q.scale.mean() if q.numel() else 1.0), 0.1
    result, exact = single(q.clamp(low, high)), q.floats(torch.float32).double().clamp(low, high)
    off = (result.floats(torch.float32).double() - exact).abs()
    assert bool((off <= 0.5001 * repeated(result.scale, tuple(q.shape)) + 1e-6 * exact.abs()).all())


def test_clamp_to_what_the_format_has_not() -> None:
    """A bound beyond the format's range gives new scales, not the nearest that there is."""
    q = hs.quantize(torch.tensor([-1.0, 1.0]), hs.int8)
    assert torch.allclose(q.clamp(min=5.0).dequantize(), torch.full((2,), 5.0), atol=0.02)
    same = single(q.clamp(min=-5.0, max=float("inf")))
    assert torch.equal(same.int_repr(), q.int_repr())


@pytest.mark.parametrize("spec", [QSpec(hs.uint8), QSpec(hs.int4, PerChannel(1))])
def test_max_pool(spec: QSpec) -> None:
    """Max pooling picks integers: the floats' result in every bit, and the same indices."""
    q = hs.quantize(torch.randn(2, 3, 8, 8), spec)
    pooled = single(F.max_pool2d(q, 3, 2, 1))
    assert torch.equal(pooled.dequantize(), F.max_pool2d(q.dequantize(), 3, 2, 1))
    assert pooled.axis == spec.axis
    values, indices = F.max_pool2d(q, 2, return_indices=True)
    assert torch.equal(indices, F.max_pool2d(q.dequantize(), 2, return_indices=True)[1])
    assert isinstance(values, QTensor)
    assert isinstance(F.adaptive_max_pool2d(q, 2), QTensor)


def test_max_pool_across_scales_uses_floats() -> None:
    """Where a window holds several scales, integers have no common order."""
    q = hs.quantize(torch.randn(1, 2, 4, 4), hs.int8, axis=3)
    pooled = F.max_pool2d(q, 2)
    assert not isinstance(pooled, QTensor)
    assert torch.equal(pooled, F.max_pool2d(q.dequantize(), 2))


def test_sums_are_exact() -> None:
    """The integers are summed exactly and scaled once, along shared and over all dimensions."""
    q = hs.from_int_repr(
        torch.randint(-128, 128, (8, 4096)), QSpec(hs.int8, PerToken()), scale=0.1, zero_point=3
    )
    steps = q.int_repr().long() - 3
    scale = q.scale[0, 0].double()
    assert torch.equal(q.sum(1), (steps.sum(1) * scale).float())
    assert torch.equal(q.mean(1, keepdim=True), (steps.double().mean(1, True) * scale).float())
    whole = hs.from_int_repr(q.int_repr(), hs.int8, scale=0.1, zero_point=3)
    assert torch.equal(whole.sum(), (steps.sum() * scale).float())


def test_equal_compares_formats_too() -> None:
    """torch.equal of two quantized tensors: format, scale, zero point and integers; else values."""
    q = hs.quantize(torch.tensor([1.0, 2.0]), hs.int8)
    assert torch.equal(q, q.clone())
    assert torch.equal(q, q.dequantize())
    assert not torch.equal(q, q * 2)
    assert not torch.equal(q, hs.quantize(q.dequantize(), hs.int16))
    assert torch.allclose(q, hs.quantize(q.dequantize(), hs.int16), atol=0.01)


def test_leaving_as_numbers() -> None:
    """item, float, bool, int and formatting give the float that one element stands for."""
    q = hs.quantize(torch.tensor([0.5, -1.0]), hs.int8, scale=0.5, zero_point=0)
    assert q[0].item() == float(q[0]) == 0.5
    assert bool(q[1] < 0)
    assert int(q[1]) == -1
    assert f"{q[0]:.2f}" == "0.50"
    assert q.tolist() == [0.5, -1.0]
