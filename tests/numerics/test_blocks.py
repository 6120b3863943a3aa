"""Reductions over the elements that share a scale."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.numerics import ops
from halfstep.numerics.blocks import block_sum
from tests.assertions import assert_same_bits
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS, QUICK, SPECIALS, Case, cases


def block_of(x: Tensor, scale: Tensor, index: tuple[int, ...]) -> Tensor:
    """The elements that share the scale at ``index``."""
    sizes = [d // s for d, s in zip(x.shape, scale.shape, strict=True)]
    return x[tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, sizes, strict=True))]


def indices(scale: Tensor) -> Iterator[tuple[int, ...]]:
    """Every index of a scale."""
    return itertools.product(*(range(n) for n in scale.shape))


@QUICK
@given(cases(specials=(*SPECIALS, math.nan), float_zero_point=False))
def test_min_max_is_that_of_each_block(case: Case) -> None:
    """The least and greatest float32 of each block; NaN where it holds one; 0 where it is empty."""
    shape = case.scale.shape
    lo, hi = ops.min_max(case.x, shape)
    assert lo.shape == hi.shape == shape
    assert lo.dtype == hi.dtype == torch.float32
    for index in indices(case.scale):
        values = block_of(case.x, case.scale, index).flatten().tolist()
        if any(math.isnan(value) for value in values):
            assert math.isnan(lo[index])
            assert math.isnan(hi[index])
        else:
            expected = torch.tensor([min(values, default=0.0), max(values, default=0.0)])
            assert_same_bits(torch.stack([lo[index], hi[index]]), expected + 0.0)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_min_max_has_no_negative_zero(dtype: torch.dtype) -> None:
    """-0.0 becomes 0.0, so that the order of equal zeros cannot show."""
    for values in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]):
        lo, hi = ops.min_max(torch.tensor(values, dtype=dtype), (1,))
        assert_same_bits(torch.cat([lo, hi]), torch.zeros(2))


@pytest.mark.parametrize("layout", MEMORY_FORMATS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (1, 6, 1, 1), (2, 1, 1, 1), (2, 3, 4, 4), (2, 6, 4, 4)]
)
def test_min_max_does_not_depend_on_layout(layout: str, shape: tuple[int, ...]) -> None:
    """The same bits for every memory format."""
    x = MEMORY_FORMATS[layout](torch.randn(2, 6, 4, 4))
    for got, wanted in zip(ops.min_max(x, shape), ops.min_max(x.contiguous(), shape), strict=True):
        assert_same_bits(got, wanted)


@QUICK
@given(cases(specials=(), float_zero_point=False))
def test_block_sum_is_that_of_each_block(case: Case) -> None:
    """Integers sum exactly, and an empty block sums to 0."""
    x = torch.randint(-100, 100, case.x.shape)
    sums = block_sum(x, case.scale.shape)
    assert sums.shape == case.scale.shape
    for index in indices(case.scale):
        assert sums[index] == block_of(x, case.scale, index).sum()
