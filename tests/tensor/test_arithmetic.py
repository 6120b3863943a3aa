"""Sums, products and joins stay quantized, within half a step, on the axis that they had."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

import halfstep as hs
from halfstep import (
    ArgumentError,
    ArgumentTypeError,
    NonFiniteError,
    PerChannel,
    PerTensor,
    QSpec,
    QTensor,
)
from tests.strategies import QUICK, Case, cases, repeated, specs
from tests.tensor.results import assert_scale_fits, single, wide

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
}
WITH_NUMBERS: dict[str, Callable[[Any, float], Any]] = {
    "add": lambda a, n: a + n,
    "sub": lambda a, n: a - n,
    "rsub": lambda a, n: n - a,
    "mul": lambda a, n: a * n,
    "div": lambda a, n: a / (abs(n) + 0.1),
    "neg": lambda a, n: -a,
}
SAFE = (0.0, -0.0)


def quantized(case: Case) -> QTensor:
    """The case as a quantized tensor."""
    return hs.quantize(case.x, case.spec, scale=case.scale, zero_point=case.zero_point)


def assert_half_a_step(q: QTensor, exact: Tensor) -> None:
    """Within half a step of the exact value, but for what float32 itself rounds."""
    assert_scale_fits(q)
    off = (q.dequantize().double() - exact).abs()
    assert bool((off <= 0.5001 * repeated(q.scale, tuple(q.shape)) + 1e-6 * exact.abs()).all())


@pytest.mark.parametrize("name", sorted(OPERATIONS))
@given(data=st.data(), case=cases(max_bits=16, x_dtypes=(torch.float32,), specials=SAFE))
@QUICK
def test_two_tensors(name: str, data: st.DataObject, case: Case) -> None:
    """Of any two formats: within half a step of the float64 result of what they stand for."""
    if name == "cat" and not case.x.ndim:
        return
    other_spec = data.draw(specs(tuple(case.x.shape), max_bits=16, float_zero_point=False))
    a, b = quantized(case), hs.quantize(torch.randn(case.x.shape), other_spec)
    exact = OPERATIONS[name](a.dequantize().double(), b.dequantize().double())
    result = single(OPERATIONS[name](a, b))
    assert_half_a_step(result, exact)
    given = [q.spec.granularity for q in (a, b) if q.spec.granularity != PerTensor()]
    if given and name in ("add", "sub", "mul"):
        assert result.spec.granularity in given


@pytest.mark.parametrize("name", sorted(WITH_NUMBERS))
@given(
    number=st.floats(-1e3, 1e3, width=32),
    case=cases(max_bits=16, x_dtypes=(torch.float32,), specials=SAFE, float_zero_point=False),
)
@QUICK
def test_tensor_and_number(name: str, number: float, case: Case) -> None:
    """With a number too, on the same axis and in the same format."""
    q = quantized(case)
    exact = WITH_NUMBERS[name](q.dequantize().double(), number)
    result = single(WITH_NUMBERS[name](q, number))
    assert_half_a_step(result, exact)
    assert result.spec == q.spec


@given(case=cases(float_zero_point=False))
@QUICK
def test_scaling_keeps_the_integers(case: Case) -> None:
    """Times or by a positive number: the same integers under another scale."""
    q = quantized(case)
    for scaled in map(single, (q * 2, 2 * q, q / 4, q * 0.5)):
        assert torch.equal(scaled.int_repr(), q.int_repr())
        assert torch.equal(scaled.zero_point, q.zero_point)
    assert torch.equal(single(q * 2).scale, q.scale * 2)


@given(case=cases(float_zero_point=False))
@QUICK
def test_shared_qparams_stay_where_the_result_fits(case: Case) -> None:
    """Sums of integers are exact to the last bit and keep scale and zero point, or are refitted."""
    q = quantized(case)
    zero = q.zero_point.to(torch.int64)
    codes = 2 * wide(q.int_repr()) - repeated(zero, tuple(q.shape))
    fits = bool(((codes >= q.spec.qmin) & (codes <= q.spec.qmax)).all())
    result = single(q + q)
    if fits:
        assert torch.equal(wide(result.int_repr()), codes)
        assert torch.equal(result.scale, q.scale)
        assert torch.equal(result.zero_point, q.zero_point)
    assert torch.equal(single(q - q).dequantize(), torch.zeros_like(q))


def test_sums_of_int32_are_exact() -> None:
    """Codes beyond 2^24, which float32 would round, add exactly under shared qparams."""
    ints = torch.tensor([16777217, -16777217, 3], dtype=torch.int32)
    q = hs.from_int_repr(ints, hs.int32, scale=0.1, zero_point=0)
    assert torch.equal(single(q + q).int_repr(), 2 * ints)
    assert torch.equal(single(-q).int_repr(), -ints)


def test_codes_that_no_float32_holds() -> None:
    """hs.add and hs.mul take int32 codes beyond 2^24 exactly."""
    spec = QSpec(hs.int32)
    b, c, two = (
        hs.from_int_repr(torch.tensor([code]), spec, scale=1.0, zero_point=0)
        for code in (2**24 + 1, 2, 2)
    )
    assert hs.add(b, c, scale=1.0, zero_point=0).int_repr().item() == 16777219
    assert hs.mul(b, two, scale=1.0, zero_point=0).int_repr().item() == 2**25 + 2
    assert hs.add(b, torch.tensor([2.0]), scale=1.0, zero_point=5).int_repr().item() == 16777224
    clamped = torch.clamp(
        hs.from_int_repr(torch.tensor([2**24 + 1, 9]), spec, scale=1.0, zero_point=0), max=2.0**30
    )
    assert clamped.int_repr().tolist() == [2**24 + 1, 9]


def stands_for(q: QTensor) -> Tensor:
    """The values in float64, which is exact to a relative 2^-52."""
    shape = tuple(q.shape)
    return (q.int_repr().double() - repeated(q.zero_point, shape)) * repeated(
        q.scale, shape
    ).double()


@pytest.mark.parametrize("name", [*sorted(OPERATIONS), "neg", "rsub", "pad"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("other", [hs.int8, hs.int32])
def test_int32_is_within_half_a_step(name: str, symmetric: bool, other: hs.QDType) -> None:  # noqa: FBT001 (a parameter)
    """Whatever scales meet, each of the 2^32 steps counts, whose scale is one float32."""
    generator = torch.Generator().manual_seed(7)
    ones: dict[str, Callable[[Any, Any], Any]] = {
        "neg": lambda a, b: -a,
        "rsub": lambda a, b: 0.3 - a,
        "pad": lambda a, b: torch.nn.functional.pad(a, (1, 1), value=3.5),
    }
    run = (OPERATIONS | ones)[name]
    for granularity in (PerTensor(), PerChannel(0)):
        a, b = (
            hs.quantize(
                torch.randn(2, 500, generator=generator) + 0.3,
                QSpec(dtype, granularity, symmetric=symmetric),
            )
            for dtype in (hs.int32, other)
        )
        result = single(run(a, b))
        exact = run(stands_for(a), stands_for(b))
        off = (stands_for(result) - exact).abs() / repeated(result.scale, tuple(result.shape))
        assert result.spec.dtype == hs.int32
        assert float(off.max()) <= 0.5001


def test_qparams_change_where_the_result_does_not_fit() -> None:
    """A sum beyond the format's range gets its own scale instead of saturating."""
    q = hs.from_int_repr(torch.tensor([100, -100]), hs.int8, scale=1.0, zero_point=0)
    result = single(q + q)
    assert result.q_scale() == pytest.approx(400 / 255)
    assert torch.allclose(result.dequantize(), torch.tensor([200.0, -200.0]), atol=0.8)


def test_axis_survives_broadcasting() -> None:
    """A tensor broadcast from fewer dimensions takes its axis along, counted from the back."""
    image = hs.quantize(torch.randn(2, 4, 5), hs.int8)
    bias = hs.quantize(torch.randn(4, 1), hs.int8, axis=0)
    assert single(image + bias).axis == 1
    assert single(bias * image).axis == 1


def test_joining_along_the_axis_keeps_all_scales() -> None:
    """cat along the channel axis: integers, scales and zero points side by side, exactly."""
    a, b = (hs.quantize(torch.randn(n, 3), hs.uint8, axis=0) for n in (2, 4))
    joined = single(torch.cat([a, b]))
    assert torch.equal(joined.int_repr(), torch.cat([a.int_repr(), b.int_repr()]))
    assert torch.equal(joined.scale, torch.cat([a.scale, b.scale]))
    assert torch.equal(joined.dequantize(), torch.cat([a.dequantize(), b.dequantize()]))


def test_numbers_that_are_not_finite_give_floats() -> None:
    """What no integer stands for, infinity, NaN or a complex number, leaves the integers."""
    q = hs.quantize(torch.tensor([1.0, -2.0]), hs.int8)
    for result in (q + float("inf"), q * float("nan"), q / 0, q * 1j, q + torch.tensor(1j)):
        assert not isinstance(result, QTensor)
    assert (q + float("nan")).isnan().all()


def test_add_and_mul_with_given_qparams() -> None:
    """hs.add and hs.mul quantize the exact result with the scale and zero point that are given."""
    a = hs.quantize(
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]), hs.int8, axis=1, scale=0.5, zero_point=0
    )
    b = torch.tensor([[0.5, 0.5], [1.0, 1.0]])
    result = hs.add(a, b, scale=[0.5, 1.0], zero_point=[0, 3])
    assert result.int_repr().tolist() == [[3, 5], [8, 8]]
    assert result.axis == 1
    assert hs.mul(b, a, scale=0.5, zero_point=0).int_repr().tolist() == [[1, 2], [6, 8]]


def test_add_refuses_what_means_nothing() -> None:
    """No quantized operand, a scale that is none, and NaN, each by its own error."""
    q, x = hs.quantize(torch.ones(2), hs.int8), torch.ones(2)
    with pytest.raises(
        ArgumentTypeError, match=r"neither operand is a QTensor \(Tensor and Tensor\)"
    ):
        hs.add(x, x, scale=1.0)
    with pytest.raises(ArgumentError, match="scale=0 is not a step"):
        hs.add(q, q, scale=0.0, zero_point=0)
    for bad in (x, x.double()):
        with pytest.raises(NonFiniteError):
            hs.add(q, bad * float("nan"), scale=1.0, zero_point=0)
    for call in (hs.add, hs.mul):
        with pytest.raises(ArgumentTypeError, match="an operand is str: give tensors"):
            call(q, "a", scale=1.0, zero_point=0)
        with pytest.raises(ArgumentTypeError, match=r"an operand is torch\.complex64"):
            call(q, x * 1j, scale=1.0, zero_point=0)
        with pytest.raises(ArgumentError, match=r"shapes \(2,\) and \(3,\) do not broadcast"):
            call(q, torch.ones(3), scale=1.0, zero_point=0)


def test_wider_format_wins() -> None:
    """int4 plus int8 is int8; float16 plus float32 stands for float32."""
    a = hs.quantize(torch.randn(3, dtype=torch.float16), QSpec(hs.int4, PerChannel(0)))
    b = hs.quantize(torch.randn(3), hs.int8)
    result = single(a + b)
    assert result.spec == QSpec(hs.int8, PerChannel(0))
    assert result.dtype == torch.float32
