"""The affine mapping: what quantize, dequantize and fake-quantize promise for every format."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.errors import NonFiniteError
from halfstep.numerics import ops
from halfstep.numerics.affine import needs_float64, spread
from halfstep.spec import PerChannel, PerGroup, QDType, QSpec, int8, int16, int32, uint8, uint16
from tests.assertions import assert_same_bits, assert_same_layout
from tests.strategies import (
    FLOAT_DTYPES,
    MEMORY_FORMATS,
    QUICK,
    SPECIALS,
    THOROUGH,
    Case,
    cases,
    qparams,
    repeated,
    specs,
)

U = 2.0**-24  # float32's unit roundoff: fl(a) = a * (1 + d) with |d| <= U


def quantize(case: Case, *, check_nan: bool = False) -> Tensor:
    """The codes of a case."""
    return ops.quantize(case.x, case.scale, case.zero_point, *case.bounds, case.storage, check_nan)


def number_and_codes(spec: QSpec, *values: float) -> Tensor:
    """The codes of numbers with scale 1 and zero point 0."""
    one, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    return ops.quantize(torch.tensor(values), one, zero, spec.qmin, spec.qmax, spec.dtype.storage)


@THOROUGH
@given(cases(x_dtypes=(torch.float32,), float_zero_point=False, specials=()))
def test_round_trip_is_within_half_a_step(case: Case) -> None:
    """|x' - x| <= scale / 2 + 2^-24 (|x| + |x'|) for x between the lowest and the highest code.

    The slack is two float32 roundings, no more: the quotient x / scale moves by at most 2^-24 of
    itself, and the product that gives x' by 2^-24 of |x'|; the sum with zero_point is exact. For
    codes of up to 16 bits the slack is below 2^-7 steps. Where |x / scale| exceeds 2^23 (int32
    only) the quotient has no fraction left, and the slack is what float32's 24 bits can do.
    """
    x, scale = case.x.double(), repeated(case.scale, tuple(case.x.shape)).double()
    zero_point = repeated(case.zero_point, tuple(case.x.shape)).double()
    low, high = (case.spec.qmin - zero_point) * scale, (case.spec.qmax - zero_point) * scale
    back = ops.dequantize(quantize(case), case.scale, case.zero_point, torch.float32).double()
    inside = (low <= x) & (x <= high)
    bound = scale / 2 + U * (x.abs() + back.abs())
    assert ((back - x).abs() <= bound)[inside].all()


@QUICK
@given(cases(x_dtypes=(torch.float32,), float_zero_point=False, specials=(math.inf, -math.inf)))
def test_what_lies_outside_saturates(case: Case) -> None:
    """Beyond the last code by more than half a step gives that code; infinities do too."""
    zero_point = repeated(case.zero_point, tuple(case.x.shape)).double()
    codes = case.x.double() / repeated(case.scale, tuple(case.x.shape)).double() + zero_point
    q = quantize(case).double()
    assert (q[codes > case.spec.qmax + 0.51] == case.spec.qmax).all()
    assert (q[codes < case.spec.qmin - 0.51] == case.spec.qmin).all()


@QUICK
@given(cases())
def test_codes_stay_within_the_bounds(case: Case) -> None:
    """No input, however odd, gives a code outside [qmin, qmax]."""
    q = quantize(case).double()
    assert ((q >= case.spec.qmin) & (q <= case.spec.qmax)).all()


@QUICK
@given(cases())
def test_fake_quantize_is_dequantize_of_quantize(case: Case) -> None:
    """Equal in every bit, for every float dtype, format and layout."""
    fake = ops.fake_quantize(case.x, case.scale, case.zero_point, *case.bounds)
    back = ops.dequantize(quantize(case), case.scale, case.zero_point, case.x.dtype)
    assert_same_bits(fake, back)
    with_mask, mask = ops.fake_quantize_with_mask(case.x, case.scale, case.zero_point, *case.bounds)
    assert_same_bits(with_mask, fake)
    assert_same_layout(mask, case.x)


@QUICK
@given(cases(max_bits=16, x_dtypes=(torch.float32, torch.float64), float_zero_point=False))
def test_quantizing_again_changes_nothing(case: Case) -> None:
    """A value on the grid stays there, in every bit; int32's grid is finer than float32."""
    once = ops.fake_quantize(case.x, case.scale, case.zero_point, *case.bounds)
    twice = ops.fake_quantize(once, case.scale, case.zero_point, *case.bounds)
    assert_same_bits(twice, once)


@QUICK
@given(cases(max_bits=16, float_zero_point=False, specials=()), st.integers(0, 2**32 - 1))
def test_the_integers_survive_a_round_trip(case: Case, seed: int) -> None:
    """quantize(dequantize(q)) is q, for every code of at most 16 bits."""
    spec = case.spec
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(spec.qmin, spec.qmax + 1, case.x.shape, generator=generator)
    q = q.to(case.storage)
    x = ops.dequantize(q, case.scale, case.zero_point, torch.float32)
    assert_same_bits(ops.quantize(x, case.scale, case.zero_point, *case.bounds, case.storage), q)


@QUICK
@given(cases(specials=(math.inf, -math.inf, 0.0, -0.0)))
def test_a_greater_value_never_gets_a_smaller_code(case: Case) -> None:
    """Quantize is monotone in x."""
    scale, zero_point = case.scale.flatten()[:1], case.zero_point.flatten()[:1]
    if not scale.numel():
        return
    x = case.x.flatten().sort().values
    q = ops.quantize(x, scale, zero_point, *case.bounds, case.storage).double()
    assert (q.diff() >= 0).all()


@QUICK
@given(cases(float_zero_point=False), st.sampled_from([0.0, -0.0]))
def test_zero_is_exact(case: Case, zero: float) -> None:
    """0.0 and -0.0 both give the zero point, and come back as 0.0."""
    x = torch.full_like(case.x, zero)
    q = ops.quantize(x, case.scale, case.zero_point, *case.bounds, case.storage)
    assert (q.double() == repeated(case.zero_point, tuple(x.shape))).all()
    back = ops.dequantize(q, case.scale, case.zero_point, x.dtype)
    assert_same_bits(back, torch.zeros_like(back))


@QUICK
@given(cases(x_dtypes=(torch.float32,), specials=(), float_zero_point=True))
def test_the_float_zero_point_form(case: Case) -> None:
    """q = clamp(rne(x / scale + zero_point)), x' = (q - zero_point) * scale, each rounded once."""
    scale = repeated(case.scale, tuple(case.x.shape)).numpy()
    zero_point = repeated(case.zero_point, tuple(case.x.shape)).numpy()
    codes = (case.x.numpy() / scale + zero_point).round().clip(*case.bounds)
    assert_same_bits(quantize(case), torch.from_numpy(np.asarray(codes)).to(case.storage))
    expected = torch.from_numpy(np.asarray((codes - zero_point) * scale))
    back = ops.dequantize(quantize(case), case.scale, case.zero_point, torch.float32)
    assert_same_bits(back, expected)


@QUICK
@given(cases(max_bits=16, x_dtypes=(torch.float32,), float_zero_point=False))
def test_the_formula_in_numpy(case: Case) -> None:
    """The same integers as the formula written in NumPy's float32."""
    scale = repeated(case.scale, tuple(case.x.shape)).numpy()
    zero_point = repeated(case.zero_point, tuple(case.x.shape)).numpy().astype("float64")
    with np.errstate(over="ignore"):
        steps = (case.x.numpy() / scale).round()
    codes = (steps.astype("float64") + zero_point).clip(*case.bounds)
    assert torch.equal(quantize(case).double(), torch.from_numpy(np.asarray(codes)))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_every_float_dtype_is_computed_in_float32(dtype: torch.dtype) -> None:
    """The codes of x are those of x.float(), whatever x's dtype."""
    x = torch.randn(500, dtype=torch.float64).mul(3).to(dtype)
    scale, zero = torch.tensor([0.05]), torch.tensor([3], dtype=torch.int32)
    args = (scale, zero, -128, 127, torch.int8)
    assert_same_bits(ops.quantize(x, *args), ops.quantize(x.float(), *args))
    fake = ops.fake_quantize(x, *args[:4])
    assert_same_bits(fake, ops.fake_quantize(x.float(), *args[:4]).to(dtype))


def test_the_float_zero_point_form_has_no_negative_zero() -> None:
    """-0.0 is no code: what rounds to it comes back as 0.0, as from the integer 0."""
    x, one, zero = torch.tensor([-0.25, -0.0]), torch.ones(1), torch.zeros(1)
    assert_same_bits(ops.fake_quantize(x, one, zero, -8, 7), torch.zeros(2))
    q = ops.quantize(x, one, zero, -8, 7, torch.int8)
    assert_same_bits(ops.dequantize(q, one, zero, torch.float32), torch.zeros(2))


def test_ties_go_to_the_even_code() -> None:
    """rne is round-half-to-even, before the zero point is added."""
    assert number_and_codes(QSpec(int8), -2.5, -1.5, -0.5, 0.5, 1.5, 2.5).tolist() == [
        *(-2, -2, 0),
        *(0, 2, 2),
    ]
    odd = torch.tensor([1], dtype=torch.int32)
    q = ops.quantize(torch.tensor([0.5, 1.5]), torch.ones(1), odd, -128, 127, torch.int8)
    assert q.tolist() == [1, 3]


@pytest.mark.parametrize("spec", [QSpec(d) for d in (int8, uint8, int16, uint16, int32)], ids=str)
def test_infinities_saturate(spec: QSpec) -> None:
    """Inf gives the last code and -Inf the first; so does what overflows in the quotient."""
    q = number_and_codes(spec, math.inf, -math.inf, 3.4e38, -3.4e38)
    assert q.tolist() == [spec.qmax, spec.qmin] * 2
    tiny = torch.tensor([2.0**-126])
    zero = torch.zeros(1, dtype=torch.int32)
    q = ops.quantize(torch.tensor([1e30]), tiny, zero, *(spec.qmin, spec.qmax), spec.dtype.storage)
    assert q.tolist() == [spec.qmax]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_nan_is_refused_when_checked(dtype: torch.dtype) -> None:
    """With the check, the error says how many NaN there are and the two ways out."""
    x = torch.tensor([1.0, math.nan, 2.0, math.nan], dtype=dtype)
    args = (torch.ones(1), torch.ones(1, dtype=torch.int32), -128, 127)
    text = "x holds 2 NaN in 4 values: clean it, or pass nan='ignore' to quantize each NaN as 0"
    with pytest.raises(NonFiniteError, match=text):
        ops.quantize(x, *args, torch.int8, True)
    assert ops.quantize(x, *args, torch.int8).tolist() == [2, 1, 3, 1]
    fake, mask = ops.fake_quantize_with_mask(x, *args)
    assert fake.isnan().tolist() == mask.logical_not().tolist() == [False, True, False, True]


@pytest.mark.parametrize("layout", MEMORY_FORMATS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 3, 2), (4, 6), (5,), (), (0, 3)])
def test_layouts_are_kept_and_inputs_untouched(layout: str, shape: tuple[int, ...]) -> None:
    """Outputs have the strides of empty_like(x), equal values, and x is as before."""
    contiguous = MEMORY_FORMATS["expanded" if layout == "expanded" else "contiguous"](
        torch.randn(shape)
    ).contiguous()
    x = MEMORY_FORMATS[layout](contiguous)
    before, scale = x.clone(), torch.full((1,) * x.ndim, 0.1)
    zero = torch.zeros_like(scale, dtype=torch.int32)
    q = ops.quantize(x, scale, zero, -128, 127, torch.int8)
    assert_same_layout(q, x)
    assert_same_bits(q, ops.quantize(contiguous, scale, zero, -128, 127, torch.int8))
    for y in (*ops.fake_quantize_with_mask(x, scale, zero, -128, 127),):
        assert_same_layout(y, x)
    codes = MEMORY_FORMATS[layout](torch.randint(-128, 128, shape, dtype=torch.int8))
    assert_same_layout(ops.dequantize(codes, scale, zero, torch.float32), codes)
    assert_same_bits(x, before)


@QUICK
@given(cases(specials=SPECIALS))
def test_nothing_writes_into_its_inputs(case: Case) -> None:
    """x, scale and zero point are the same in every bit after each op."""
    inputs = (case.x, case.scale, case.zero_point)
    before = [tensor.clone() for tensor in inputs]
    q = quantize(case)
    codes = q.clone()
    ops.fake_quantize_with_mask(*inputs, *case.bounds)
    ops.dequantize(q, case.scale, case.zero_point, torch.float16)
    for now, then in zip((*inputs, q), (*before, codes), strict=True):
        assert_same_bits(now, then)


@QUICK
@given(st.data())
def test_one_group_is_a_channel(data: st.DataObject) -> None:
    """Per group with one group along the axis equals per channel along the other, in every bit."""
    spec = data.draw(specs((6, 8), float_zero_point=False))
    scale, zero_point = data.draw(qparams((6, 8), spec.with_granularity(PerChannel(0))))
    grouped = spec.with_granularity(PerGroup(1, 8))
    assert grouped.granularity.scale_shape((6, 8)) == scale.shape == (6, 1)
    x = torch.randn(6, 8) * 10
    rows = [
        ops.fake_quantize(x[row], scale[row], zero_point[row], spec.qmin, spec.qmax)
        for row in range(6)
    ]
    assert_same_bits(
        ops.fake_quantize(x, scale, zero_point, spec.qmin, spec.qmax), torch.stack(rows)
    )


@QUICK
@given(cases(x_dtypes=(torch.float32,)))
def test_a_group_is_quantized_like_a_tensor_of_its_own(case: Case) -> None:
    """Each element sees only its own scale: repeating them all by hand changes no bit."""
    shape = tuple(case.x.shape)
    scale, zero_point = repeated(case.scale, shape), repeated(case.zero_point, shape)
    q = ops.quantize(case.x, scale, zero_point, *case.bounds, case.storage)
    assert_same_bits(quantize(case), q)
    assert torch.equal(spread(case.scale, case.x.shape).expand(shape), scale)


def test_int32_codes_are_exact() -> None:
    """The sum with the zero point and the difference from it are exact in 32 bits."""
    x = torch.tensor([16777217.0, -5.0, 3e9, -3e9])
    zero = torch.tensor([7], dtype=torch.int32)
    q = ops.quantize(x, torch.ones(1), zero, int32.qmin, int32.qmax, torch.int32)
    assert q.tolist() == [16777223, 2, int32.qmax, int32.qmin]
    back = ops.dequantize(q, torch.ones(1), zero, torch.float64)
    assert back.tolist() == [16777216.0, -5.0, 2147483648.0, -2147483648.0]


@pytest.mark.parametrize(("dtype", "exact"), [(int8, False), (uint16, False), (int32, True)])
def test_only_32_bits_need_float64(dtype: QDType, *, exact: bool) -> None:
    """Up to 16 bits float32 holds every code, so float64 would be waste."""
    assert needs_float64(dtype.qmin, dtype.qmax) is exact
