"""Quantizing row by row: qparams of the row alone, NaN and infinities, one batch or another."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.numerics import ops
from halfstep.numerics.rows import linear_rows, quantize_rows
from halfstep.spec import PerChannel, PerToken, QSpec, int8, int16, uint8, uint16
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, float_tensors, shapes

SPECS = [
    QSpec(uint8, PerToken()),
    QSpec(int8, PerToken(), symmetric=True),
    QSpec(int16, PerToken()),
    QSpec(uint16, PerToken()),
    QSpec(int8.within(-64, 63), PerChannel(0)),
]
FORMATS = pytest.mark.parametrize("spec", SPECS, ids=str)


@FORMATS
@QUICK
@given(data=st.data(), shape=shapes(min_dims=1, max_dims=4))
def test_each_row_as_if_it_were_alone(
    spec: QSpec, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    """By the range of its finite values; NaN and infinities elsewhere change nothing in it."""
    x = data.draw(float_tensors(shape, specials=(math.nan, math.inf, -math.inf, 0.0, 3.4e38)))
    codes, scale, zero_point = quantize_rows(x, spec)
    assert (codes.dtype, codes.shape) == (spec.dtype.storage, x.shape)
    assert tuple(scale.shape) == tuple(zero_point.shape) == spec.granularity.scale_shape(shape)
    by_row = isinstance(spec.granularity, PerToken)
    flat = x.reshape(scale.numel(), shape[-1] if by_row else math.prod(shape[1:]))
    codes, scale, zero_point = codes.reshape(flat.shape), scale.flatten(), zero_point.flatten()
    for place, row in enumerate(flat):
        finite = row[row.isfinite()]
        ends = finite if finite.numel() else torch.zeros(1)
        bounds = (spec.qmin, spec.qmax)
        s, z = ops.choose_qparams(ends.min().view(1), ends.max().view(1), *bounds, spec.symmetric)
        alone = ops.quantize(row, s, z, *bounds, spec.dtype.storage)
        assert torch.equal(codes[place].to(torch.int64), alone.to(torch.int64))
        assert_same_bits(scale[place], s[0] * (math.nan if row.isnan().any() else 1.0))
        assert zero_point[place] == z[0]


@FORMATS
def test_a_row_of_a_batch_is_the_row_alone(spec: QSpec) -> None:
    """Bit for bit, through the linear layer as well."""
    x = torch.randn(6, 40)
    w = (torch.randint(-127, 128, (9, 40)).to(torch.int8), torch.rand(9, 1) * 0.1)
    weight = (*w, torch.zeros(9, 1, dtype=torch.int32))
    y = linear_rows(quantize_rows(x, spec), weight, torch.ones(9))
    for place in range(6):
        alone = linear_rows(quantize_rows(x[place : place + 1], spec), weight, torch.ones(9))
        assert_same_bits(y[place], alone[0])


def test_nan_reaches_its_own_row_only() -> None:
    """The whole row of the result is NaN, per group too; the others are as before."""
    x = torch.randn(3, 8)
    spoiled = x.clone()
    spoiled[1, 5] = math.nan
    spec = QSpec(uint8, PerToken())
    codes, points = torch.ones(4, 8, dtype=torch.int8), torch.zeros(4, 1, dtype=torch.int32)
    for groups in (1, 2):
        weight = (codes, torch.full((4, groups), 0.1), points.expand(4, groups))
        y, before = (linear_rows(quantize_rows(v, spec), weight) for v in (spoiled, x))
        assert y[1].isnan().all()
        assert_same_bits(y[[0, 2]], before[[0, 2]])


def test_infinity_saturates() -> None:
    """The highest and the lowest code, and the step of the finite values."""
    x = torch.tensor([[0.0, 2.55, math.inf, -math.inf], [math.inf, math.inf, 0.0, math.inf]])
    codes, scale, _ = quantize_rows(x, QSpec(uint8, PerToken()))
    assert codes.tolist() == [[0, 255, 255, 0], [255, 255, 0, 255]]
    assert scale.flatten().tolist() == [torch.tensor(2.55 / 255).item(), 1.0]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,), (2, 0, 5)])
def test_empty_rows(shape: tuple[int, ...]) -> None:
    """No rows, or rows of nothing: the scale is 1."""
    codes, scale, _ = quantize_rows(torch.empty(shape), QSpec(uint8, PerToken()))
    assert codes.shape == torch.Size(shape)
    assert torch.equal(scale, torch.ones(*shape[:-1], 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(dtype: torch.dtype) -> None:
    """Converted to float32 first."""
    x = torch.randn(4, 6).to(dtype)
    spec = QSpec(uint8, PerToken())
    for found, wanted in zip(quantize_rows(x, spec), quantize_rows(x.float(), spec), strict=True):
        assert isinstance(found, Tensor)
        assert_same_bits(found, wanted)
