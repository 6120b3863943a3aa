"""What the torch engine quantizes while the model runs equals the formulas in every bit."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

import halfstep as hs
from halfstep.numerics import native
from halfstep.numerics.rows import quantize_rows
from tests.engines.steps import Run, assert_equal, assert_same, bias, bound, expected, weight
from tests.strategies import QUICK, float_tensors

if not native.is_loaded():
    pytest.skip("our kernels alone serve these steps", allow_module_level=True)

SPECS = [
    hs.QSpec(hs.uint8, hs.PerToken()),
    hs.QSpec(hs.int8, hs.PerToken(), symmetric=True),
    hs.QSpec(hs.int8, hs.PerToken()),
    hs.QSpec(hs.uint8, hs.PerChannel(0)),
    hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True, narrow_range=True),
]


@given(
    x=st.sampled_from([(4, 37), (2, 3, 16), (5, 1), (3, 300)]).flatmap(
        lambda shape: float_tensors(shape, specials=(math.nan, math.inf, -math.inf, 0.0, 1e-45))
    ),
    spec=st.sampled_from(SPECS),
)
@QUICK
def test_quantize_rows(x: Tensor, spec: hs.QSpec) -> None:
    """Codes, scales and zero points: infinities saturate, a row with NaN has a scale of NaN."""
    kernel, given = bound("quantize_rows", Run(x), spec)
    assert kernel is not None
    codes, scale, zero_point = kernel.function(*given)
    want = expected("quantize_rows", Run(x), spec)
    assert torch.equal(scale.isnan(), want[1].isnan())
    assert_same((codes, scale.nan_to_num(), zero_point), (want[0], want[1].nan_to_num(), want[2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_of_any_float(dtype: torch.dtype) -> None:
    """Other floats are read as float32."""
    assert_equal("quantize_rows", Run(torch.randn(3, 20).to(dtype)), SPECS[0])


@pytest.mark.parametrize("spec", SPECS[:3], ids=str)
@pytest.mark.parametrize("rows", [(1,), (7,), (2, 130)])
def test_linear_of_rows(rows: tuple[int, ...], spec: hs.QSpec) -> None:
    """Each row by its own scale and zero point."""
    torch.manual_seed(0)
    given = quantize_rows(torch.randn(*rows, 45), spec)
    for activation in (None, (0.0, None)):
        assert_equal("linear_rows", tuple(map(Run, given)), weight((33, 45)), bias(33), activation)


@pytest.mark.parametrize("spec", SPECS[3:], ids=str)
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_convolutions_of_samples(groups: int, spec: hs.QSpec) -> None:
    """Each sample by its own scale, padded with its own zero point."""
    torch.manual_seed(0)
    given = tuple(map(Run, quantize_rows(torch.randn(3, 16, 9, 9), spec)))
    w, sides = weight((16, 16 // groups, 3, 3)), ((2, 2), (1, 1), (1, 1), groups)
    assert_equal("conv_rows", given, w, bias(16), *sides, (0.0, 6.0))
    sides = ((2, 2), (1, 1), (1, 1), groups, (1, 1))
    turned = weight((16, 16 // groups, 3, 3), 1)
    assert_equal("conv_transpose_rows", given, turned, bias(16), *sides, None)


def test_a_row_with_nan_touches_no_other() -> None:
    """NaN in one row gives a row of NaN, and the numbers of the others as without it."""
    x = torch.randn(3, 20)
    clean = quantize_rows(x, SPECS[0])
    x[1, 4] = math.nan
    kernel, given = bound(
        "linear_rows", tuple(map(Run, quantize_rows(x, SPECS[0]))), weight((5, 20)), None, None
    )
    assert kernel is not None
    y = kernel.function(*given)
    assert y[1].isnan().all()
    assert not y[[0, 2]].isnan().any()
    assert torch.equal(clean[0][0], given[0][0][0])
