"""Rows and bags of rows, by loops in NumPy's float32."""

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.numerics import embedding
from halfstep.spec import PerChannel, PerGroup, PerTensor, PerToken, QSpec, int4, int8, uint8
from halfstep.tensor import QTensor, quantize
from tests.assertions import assert_same_bits
from tests.strategies import QUICK

SPECS = [
    QSpec(int8, PerTensor()),
    QSpec(int8, PerChannel(1)),
    QSpec(uint8, PerChannel(0)),
    QSpec(int4, PerGroup(1, 3)),
    QSpec(int8, PerGroup(0, 5)),
    QSpec(uint8, PerToken()),
    QSpec(uint8, PerChannel(0), float_zero_point=True),
    QSpec(uint8, PerTensor(), float_zero_point=True),
]
FORMATS = pytest.mark.parametrize("spec", SPECS, ids=str)
ROWS, WIDTH = 10, 6


def weight_of(spec: QSpec) -> QTensor:
    """A quantized table of rows."""
    return quantize(torch.randn(ROWS, WIDTH), spec)


def parts(weight: QTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scale and zero point."""
    return weight.int_repr(), weight.scale, weight.zero_point


@FORMATS
@pytest.mark.parametrize("shape", [(7,), (2, 3), (), (0,), (2, 0)])
def test_rows(spec: QSpec, shape: tuple[int, ...]) -> None:
    """The dequantized rows, for indices of any shape and of both integer dtypes."""
    weight = weight_of(spec)
    for dtype in (torch.int64, torch.int32):
        indices = torch.randint(0, ROWS, shape).to(dtype)
        found = embedding.rows(*parts(weight), indices)
        assert_same_bits(found, weight.dequantize()[indices.long()])


def bag(weight: QTensor, own: list[tuple[int, float | None]], mode: int) -> Any:
    """One bag by the formulas, row after row."""
    rows = weight.dequantize().numpy()
    if not own:
        return np.zeros(WIDTH, np.float32)
    if mode == embedding.MAX:
        return np.max([rows[i] for i, _ in own], 0)
    total = np.zeros(WIDTH, np.float32)
    for i, factor in own:
        total = total + (rows[i] if factor is None else np.float32(factor) * rows[i])
    shared = weight.scale.shape[0] == 1 and not weight.zero_point.is_floating_point()
    if shared and own[0][1] is None:
        steps = weight.int_repr().to(torch.int64) - weight.zero_point
        acc = sum(steps[i].numpy() for i, _ in own)
        total = acc.astype(np.float32) * weight.scale.numpy()[0]
    return total / np.float32(len(own)) if mode == embedding.MEAN else total


@FORMATS
@QUICK
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    mode=st.integers(0, 2),
    weighted=st.booleans(),
    last=st.booleans(),
    padding=st.integers(-1, ROWS - 1),
    seed=st.integers(0, 99),
)
def test_bags(
    spec: QSpec, sizes: list[int], mode: int, padding: int, seed: int, *, weighted: bool, last: bool
) -> None:
    """Sum, mean and maximum; empty bags, left-out rows, weights, and both forms of offsets."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, ROWS, (sum(sizes),), generator=generator)
    weighted = weighted and mode == embedding.SUM
    factors = torch.randn(len(indices), generator=generator) if weighted else None
    ends = np.cumsum([0, *sizes])
    offsets = torch.tensor(ends if last else ends[:-1])
    weight = weight_of(spec)
    found = embedding.bags(*parts(weight), indices, offsets, mode, factors, last, padding)
    assert found.shape == (len(sizes), WIDTH)
    each = list(
        zip(indices.tolist(), factors.tolist() if weighted else [None] * len(indices), strict=True)
    )
    for place, (start, end) in enumerate(pairwise(ends)):
        own = [(i, factor) for i, factor in each[start:end] if i != padding]
        assert_same_bits(found[place], torch.from_numpy(bag(weight, own, mode)))


def test_offsets_may_be_of_32_bits() -> None:
    """As torch takes them."""
    weight = weight_of(QSpec(int8))
    indices, offsets = torch.tensor([1, 2, 3]), torch.tensor([0, 2])
    wide = embedding.bags(*parts(weight), indices, offsets, 0, None, False, -1)
    assert_same_bits(
        embedding.bags(*parts(weight), indices.int(), offsets.int(), 0, None, False, -1), wide
    )


def test_no_bags() -> None:
    """No offsets, no rows."""
    nothing = torch.empty(0, dtype=torch.int64)
    weight = weight_of(QSpec(uint8, PerChannel(0)))
    assert embedding.bags(*parts(weight), nothing, nothing, 1, None, False, -1).shape == (0, WIDTH)
