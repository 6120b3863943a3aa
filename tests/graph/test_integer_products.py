"""Sums of products: the whole chain after the sum, near ties; rows with scales of their own."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.graph.edges import Edge
from halfstep.graph.integer_ops import INTEGER
from halfstep.spec import PerChannel, PerGroup, PerToken, QSpec, int4, int8, int16, uint8, uint16
from halfstep.tensor import QTensor, from_int_repr, quantize
from tests.assertions import assert_same_bits

PER_ROW = QSpec(int8, PerChannel(0), symmetric=True)
DTYPES = pytest.mark.parametrize("dtype", [int8, uint8, int16, uint16], ids=str)
SX, SW = 0.1, 0.3


def run(name: str, *args: Any) -> Any:
    """The integer step of that name."""
    return INTEGER[f"int.{name}"](*args)


def near_ties(shape: tuple[int, ...], zero_point: int, dtype: torch.dtype) -> Tensor:
    """Codes few steps from zero, whose sums are ties in half of the elements."""
    return (torch.randint(-2, 3, shape) + zero_point).to(dtype)


def weight_of(*shape: int) -> QTensor:
    """Small integers with one scale for each output channel."""
    scale = torch.full((shape[0],), SW) * torch.arange(1, shape[0] + 1)
    return from_int_repr(torch.randint(-2, 3, shape), PER_ROW, scale=scale, zero_point=0)


def finished(acc: Tensor, weight: QTensor, rest: Any, out: Edge) -> Tensor:
    """The steps after the exact sum, one operation at a time, in NumPy's float32."""
    bias, residual, residual_edge, activation = rest
    channels = (-1, *[1] * (weight.ndim - 2))
    f = np.float32
    y = acc.numpy().astype(f) * f(SX) * weight.scale.numpy().reshape(channels)
    y = y + bias.numpy().reshape(channels)
    # Small enough for float64 to hold the sum, so there is one rounding.
    steps = residual.to(torch.int64).numpy() - residual_edge.zero_point
    y = (y.astype(np.float64) + steps * float(f(residual_edge.scale))).astype(f)
    y = np.minimum(np.maximum(y, f(activation[0])), f(activation[1]))
    codes = np.rint(y * (f(1) / f(out.scale)) + f(out.zero_point))
    return torch.from_numpy(np.clip(codes, out.qmin, out.qmax))


@DTYPES
@pytest.mark.parametrize("op", ["linear", "conv"])
def test_the_whole_chain_near_ties(op: str, dtype: Any) -> None:
    """Sum, scales, bias, residual, activation, requantize: each code, where rounding decides."""
    zero = 40 if dtype.qmin == 0 else -7
    edge = Edge(QSpec(dtype), SX, zero)
    out = Edge(QSpec(dtype.within(dtype.qmin + 20, dtype.qmax)), 2 * SX * SW, zero + 3)
    residual_edge = Edge(QSpec(uint8), 2 * SX * SW, 9)
    shape = (50, 6) if op == "linear" else (2, 6, 5, 5)
    x, weight = (
        near_ties(shape, zero, dtype.storage),
        weight_of(4, *shape[1:2], *[3] * (op == "conv") * 2),
    )
    bias = torch.randint(-3, 4, (4,)) * (SX * SW)
    window = () if op == "linear" else ((2, 1), (1, 0), (1, 1), 1)
    steps = x.double() - zero
    acc = (
        F.linear(steps, weight.int_repr().double())
        if op == "linear"
        else F.conv2d(steps, weight.int_repr().double(), None, *window)
    )
    residual = torch.randint(0, 19, acc.shape).to(torch.uint8)
    rest = (residual, residual_edge, (-0.5, 2.0))
    found = run(op, x, edge, weight, bias, *window, *rest, out)
    assert found.dtype == dtype.storage
    assert torch.equal(found.double(), finished(acc, weight, (bias, *rest), out).double())


def test_conv_transpose() -> None:
    """Scales along the output's channels, in groups; its order of arguments is torch's own."""
    edge = Edge(QSpec(uint8), SX, 30)
    spec = QSpec(int8, PerChannel(1), symmetric=True)
    weight = quantize(torch.randn(4, 3, 3, 3), spec)
    x = torch.randint(0, 256, (2, 4, 5, 5)).to(torch.uint8)
    window = ((2, 2), (1, 1), (1, 0), 2, (1, 1))
    y = run(
        "conv_transpose", x, edge, weight, torch.ones(6), *window, None, None, (0.0, None), None
    )
    floats = run("dequantize", x, edge), weight.dequantize()
    true = F.conv_transpose2d(*floats, torch.ones(6), *window).relu()
    torch.testing.assert_close(y, true, rtol=1e-5, atol=1e-4)
    out = Edge(QSpec(uint8), 0.5, 3)
    codes = run("conv_transpose", x, edge, weight, None, *window, None, None, None, out)
    floats = run("conv_transpose", x, edge, weight, None, *window, None, None, None, None)
    assert torch.equal(codes.float(), (floats * 2 + 3).round().clamp(0, 255))


def test_linear_per_group() -> None:
    """A weight in groups goes through the same step."""
    weight = quantize(torch.randn(5, 8), QSpec(int4, PerGroup(1, 4), symmetric=True))
    edge = Edge(QSpec(int16), 1e-3, 12)
    x = run("quantize", torch.randn(3, 8), edge)
    y = run("linear", x, edge, weight, None, None, None, None, None)
    true = run("dequantize", x, edge) @ weight.dequantize().t()
    torch.testing.assert_close(y, true, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"),
    [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 6))],
)
def test_matmul_of_all_ranks(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """The shapes of torch.matmul, exact sums, both scales, and requantized."""
    edges = Edge(QSpec(uint8), SX, 100), Edge(QSpec(int8), SW, -5)
    left = torch.randint(0, 256, a).to(torch.uint8)
    right = torch.randint(-128, 128, b).to(torch.int8)
    acc = torch.matmul(left.double() - 100, right.double() + 5)
    wanted = (acc.float() * SX) * SW
    assert_same_bits(run("matmul", left, edges[0], right, edges[1], None), wanted)
    out = Edge(QSpec(int16), 0.25, 1)
    found = run("matmul", left, edges[0], right, edges[1], out)
    assert torch.equal(found.float(), (wanted * 4 + 1).round().clamp(out.qmin, out.qmax))


@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
def test_samples_of_a_convolution(op: str) -> None:
    """Each sample has its own scale: alone it gives the same bits, and its NaN is its own."""
    x = torch.randn(3, 4, 6, 6) * torch.tensor([1.0, 10.0, 0.1]).view(3, 1, 1, 1)
    transposed = op == "conv_transpose"
    spec = QSpec(int8, PerChannel(int(transposed)), symmetric=True)
    weight = quantize(torch.randn(4, 4, 3, 3), spec)
    window = ((1, 1), (1, 1), (0, 0), 1, (1, 1)) if transposed else ((1, 1), (1, 1), (1, 1), 1)
    rows = QSpec(uint8, PerChannel(0))

    def both(given: Tensor) -> Tensor:
        quantized = run("quantize_rows", given, rows)
        y: Tensor = run(f"{op}_rows", quantized, weight, torch.ones(4), *window, (0.0, None))
        return y

    y = both(x)
    for at in range(3):
        assert_same_bits(y[at : at + 1], both(x[at : at + 1]))
    x[1, 0, 0, 0] = math.nan
    assert both(x)[1].isnan().all()
    assert_same_bits(both(x)[::2], y[::2])


def test_scales_within_a_sample_are_refused() -> None:
    """A convolution cannot sum terms of several scales; nor is a lone image a batch."""
    weight, window = weight_of(4, 4, 3, 3), ((1, 1), (1, 1), (1, 1), 1)
    by_row = run("quantize_rows", torch.randn(2, 4, 6, 6), QSpec(uint8, PerToken()))
    alone = run("quantize_rows", torch.randn(4, 6, 6), QSpec(uint8, PerChannel(0)))
    for rows in (by_row, alone):
        with pytest.raises(ArgumentError, match="one for each of a batch of samples"):
            run("conv_rows", rows, weight, None, *window, None)


def test_linear_rows() -> None:
    """Near the float layer, for any number of leading dimensions."""
    x, weight, bias = torch.randn(2, 5, 16), quantize(torch.randn(7, 16), PER_ROW), torch.randn(7)
    rows = run("quantize_rows", x, QSpec(uint8, PerToken()))
    y = run("linear_rows", rows, weight, bias, (-1.0, 1.0))
    true = F.linear(x, weight.dequantize(), bias).clamp(-1, 1)
    assert (y - true).abs().max() < 0.2
    assert y.shape == true.shape


def test_no_gradient_goes_through() -> None:
    """A bias that could train makes no result that could."""
    edge, bias = Edge(QSpec(uint8), 0.1, 5), nn.Parameter(torch.ones(4))
    x = run("quantize", torch.randn(2, 3, requires_grad=True), edge)
    y = run("linear", x, edge, weight_of(4, 3), bias, None, None, None, None)
    assert not y.requires_grad


def test_no_samples() -> None:
    """A batch of none gives a batch of none, in codes and in floats."""
    edge, window = Edge(QSpec(uint8), SX, 3), ((1, 1), (1, 1), (1, 1), 1)
    rest = (None, None, None, None, edge)
    image, matrix = (torch.empty(0, 4, *more, dtype=torch.uint8) for more in ((5, 5), ()))
    weight = weight_of(6, 4, 3, 3)
    assert run("conv", image, edge, weight, None, *window, *rest[1:]).shape == (0, 6, 5, 5)
    assert run("linear", matrix, edge, weight_of(6, 4), *rest).shape == (0, 6)
    assert run("matmul", matrix, edge, matrix.t(), edge, edge).shape == (0, 0)
    assert run("matmul", matrix.t(), edge, matrix, edge, edge).eq(3).all()
    rows = run("quantize_rows", image.float(), QSpec(uint8, PerChannel(0)))
    assert run("conv_rows", rows, weight, None, *window, None).shape == (0, 6, 5, 5)
