"""Means and maxima over windows: exact sums by Python's integers, counts by torch's own floats."""

import itertools
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from torch import Tensor

from halfstep.numerics import pooling
from tests.assertions import assert_same_bits
from tests.operand import Operand
from tests.strategies import QUICK, operands

AVG: dict[int, Any] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE: dict[int, Any] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}
MAX: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
ADAPTIVE_MAX: dict[int, Any] = {
    1: F.adaptive_max_pool1d,
    2: F.adaptive_max_pool2d,
    3: F.adaptive_max_pool3d,
}


def mean_of(steps: Tensor, scale: Tensor, count: int) -> np.float32:
    """(float(acc) * s) / float(k), in NumPy's float32."""
    acc = sum(steps.flatten().tolist())
    return (np.float32(acc) * np.float32(scale.item())) / np.float32(count)


@st.composite
def windows(draw: st.DrawFn, dims: int) -> tuple[tuple[int, ...], ...]:
    """Sizes, kernel, stride and padding that torch allows, for each dimension."""
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(dims))
    stride = tuple(draw(st.integers(1, 4)) for _ in range(dims))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    sizes = tuple(draw(st.integers(k, 7)) for k in kernel)
    return sizes, kernel, stride, padding


def places(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every index of a shape."""
    return itertools.product(*map(range, shape))


@QUICK
@given(data=st.data(), dims=st.integers(1, 3), ceil=st.booleans(), inside=st.booleans())
def test_avg_pool(data: st.DataObject, dims: int, *, ceil: bool, inside: bool) -> None:
    """Window for window the exact sum, scaled, over the count that torch takes."""
    sizes, kernel, stride, padding = data.draw(windows(dims))
    x = data.draw(operands((2, 3, *sizes)))
    y = pooling.avg_pool(*x.args, kernel, stride, padding, ceil, inside, None)
    true = AVG[dims](x.values.contiguous(), kernel, stride, padding, ceil, inside)
    assert y.shape == true.shape
    torch.testing.assert_close(y.double(), true, rtol=1e-6, atol=1e-6 * float(x.values.abs().max()))
    at = tuple(data.draw(st.integers(0, n - 1)) for n in y.shape)
    spans = [
        (p * s - pad, p * s - pad + k)
        for p, s, pad, k in zip(at[2:], stride, padding, kernel, strict=True)
    ]
    cut = [slice(max(low, 0), high) for low, high in spans]
    borders = [n + pad * inside for n, pad in zip(sizes, padding, strict=True)]
    counts = [
        min(high, border) - max(low, -pad * inside)
        for (low, high), border, pad in zip(spans, borders, padding, strict=True)
    ]
    wanted = mean_of(x.steps[(*at[:2], *cut)], x.scale, int(np.prod(counts)))
    assert y[at].item() == wanted


@QUICK
@given(data=st.data(), dims=st.integers(2, 3), divisor=st.integers(1, 9))
def test_avg_pool_by_a_divisor(data: st.DataObject, dims: int, divisor: int) -> None:
    """A divisor takes the place of every count; an empty stride is the kernel."""
    sizes, kernel, _, padding = data.draw(windows(dims))
    x = data.draw(operands((1, 2, *sizes)))
    y = pooling.avg_pool(*x.args, kernel, (), padding, False, True, divisor)
    sums = AVG[dims](x.steps.double().contiguous(), kernel, None, padding, divisor_override=1)
    wanted = (sums.numpy().astype(np.float32) * x.scale.numpy()) / np.float32(divisor)
    assert_same_bits(y, torch.from_numpy(wanted))


@QUICK
@given(data=st.data(), dims=st.integers(1, 3), batched=st.booleans())
def test_adaptive_avg_pool(data: st.DataObject, dims: int, *, batched: bool) -> None:
    """Torch's own windows, with the exact sum of each; 1 is the global mean, None keeps a size."""
    sizes = tuple(data.draw(st.integers(1, 6)) for _ in range(dims))
    out = tuple(data.draw(st.integers(1, 6) | st.none()) for _ in range(dims))
    x = data.draw(operands((*[2] * batched, 3, *sizes)))
    y = pooling.adaptive_avg_pool(*x.args, out)
    true = ADAPTIVE[dims](x.values.contiguous(), out if dims > 1 else (out[0] or sizes[0],))
    torch.testing.assert_close(y.double(), true, rtol=1e-6, atol=1e-6 * float(x.values.abs().max()))
    at = tuple(data.draw(st.integers(0, n - 1)) for n in y.shape)
    ends = zip(at[-dims:], sizes, y.shape[-dims:], strict=True)
    cut = [slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in ends]
    window = x.steps[(*at[:-dims], *cut)]
    assert y[at].item() == mean_of(window, x.scale, window.numel())


@QUICK
@given(data=st.data(), dims=st.sets(st.integers(-3, 2)), keepdim=st.booleans())
def test_mean(data: st.DataObject, dims: set[int], *, keepdim: bool) -> None:
    """Any dimensions, counted from the front or the back; none given means all."""
    assume(len({dim % 3 for dim in dims}) == len(dims))
    x = data.draw(operands((3, 2, 4)))
    y = pooling.mean(*x.args, tuple(dims), keepdim)
    sums = x.steps.sum(tuple(dims) or (0, 1, 2), keepdim=keepdim)
    count = x.q.numel() // max(sums.numel(), 1)
    wanted = (sums.numpy().astype(np.float32) * np.float32(x.scale.item())) / np.float32(count)
    assert_same_bits(y, torch.from_numpy(np.asarray(wanted)))
    if not dims:
        assert_same_bits(pooling.mean(*x.args, None, keepdim), y)


@QUICK
@given(data=st.data(), dims=st.integers(1, 3), ceil=st.booleans(), dilation=st.integers(1, 2))
def test_max_pool(data: st.DataObject, dims: int, dilation: int, *, ceil: bool) -> None:
    """The codes that torch's floats choose, in every storage; where there are none, the lowest."""
    sizes, kernel, stride, padding = data.draw(windows(dims))
    assume(
        all(n + 2 * p > dilation * (k - 1) for n, p, k in zip(sizes, padding, kernel, strict=True))
    )
    x = data.draw(operands((2, 3, *sizes)))
    y = pooling.max_pool(x.q, kernel, stride, padding, (dilation,) * dims, ceil)
    true = MAX[dims](x.q.double().contiguous(), kernel, stride, padding, dilation, ceil)
    true = true.masked_fill(true.isinf(), torch.iinfo(x.q.dtype).min)
    assert y.dtype == x.q.dtype
    assert torch.equal(y.double(), true)


@QUICK
@given(data=st.data(), dims=st.integers(1, 3))
def test_adaptive_max_pool(data: st.DataObject, dims: int) -> None:
    """The codes that torch's floats choose, in every storage."""
    sizes = tuple(data.draw(st.integers(1, 6)) for _ in range(dims))
    out = tuple(data.draw(st.integers(1, 6)) for _ in range(dims))
    x = data.draw(operands((2, 3, *sizes)))
    y = pooling.adaptive_max_pool(x.q, out)
    assert y.dtype == x.q.dtype
    assert torch.equal(y.double(), ADAPTIVE_MAX[dims](x.q.double().contiguous(), out))


@pytest.mark.parametrize("batch", [0, 1])
def test_no_samples(batch: int) -> None:
    """A batch of none gives a batch of none."""
    q = torch.zeros(batch, 2, 5, 5, dtype=torch.uint8)
    one, zero = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    x = Operand(q, one, zero)
    assert pooling.avg_pool(*x.args, (2, 2), (), (0, 0), False, True, None).shape == (
        batch,
        2,
        2,
        2,
    )
    assert pooling.adaptive_avg_pool(*x.args, (1, 1)).shape == (batch, 2, 1, 1)
    assert pooling.mean(*x.args, (2, 3), False).shape == (batch, 2)
    assert pooling.max_pool(q, (2, 2), (), (0, 0), (1, 1), False).shape == (batch, 2, 2, 2)
