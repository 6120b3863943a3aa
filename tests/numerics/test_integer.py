"""The integer ops against sums of Python's own integers, written out as loops."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from halfstep.numerics import ops
from halfstep.spec import int4, int8, int16, uint8
from tests.assertions import assert_same_bits
from tests.strategies import repeated

Array = npt.NDArray[np.float32]
Index = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """Codes with their qparams, which have all dimensions."""

    q: Tensor
    scale: Tensor
    zero_point: Tensor

    @property
    def args(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three arguments of an operator."""
        return self.q, self.scale, self.zero_point

    @cached_property
    def centred(self) -> list[int]:
        """q - zero_point, flat, as Python integers."""
        wide = repeated(self.zero_point, tuple(self.q.shape)).to(torch.int64)
        values: list[int] = (self.q.to(torch.int64) - wide).flatten().tolist()
        return values

    def at(self, index: Index) -> int:
        """q - zero_point at an index; 0, the zero of padding, outside."""
        if any(not 0 <= i < n for i, n in zip(index, self.q.shape, strict=True)):
            return 0
        return self.centred[int(np.ravel_multi_index(index, self.q.shape))]


def operand(
    *shape: int, scale_shape: tuple[int, ...] | None = None, dtype: str = "int8"
) -> Operand:
    """Random codes over the whole format, random steps and zero points."""
    kinds = {"int8": int8, "uint8": uint8, "int16": int16, "int4": int4}
    kind, scale_shape = kinds[dtype], scale_shape or (1,) * len(shape)
    return Operand(
        torch.randint(kind.qmin, kind.qmax + 1, shape).to(kind.storage),
        torch.rand(scale_shape) * 0.1 + 0.01,
        torch.randint(kind.qmin, kind.qmax + 1, scale_shape, dtype=torch.int32),
    )


def finished(
    acc: list[int], shape: Index, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None
) -> Tensor:
    """(float(acc) * sx) * sw + bias in NumPy's float32, which never fuses."""
    exact = np.array([np.float32(total) for total in acc], np.float32).reshape(shape)
    y: Array = (exact * x_scale.numpy()) * w_scale.numpy()
    return torch.from_numpy(y if bias is None else y + bias.numpy())


def positions(shape: Index) -> Iterator[Index]:
    """Every index of a shape, in row-major order."""
    return itertools.product(*(range(n) for n in shape))


# --- Matmul and linear ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int4"])
@pytest.mark.parametrize("channels", [True, False])
def test_matmul(dtype: str, *, channels: bool) -> None:
    """Every element is the exact integer sum over K, then two float32 products."""
    a = operand(3, 5, scale_shape=(3, 1) if channels else None, dtype=dtype)
    b = operand(5, 4, scale_shape=(1, 4) if channels else None, dtype=dtype)
    acc = [sum(a.at((m, k)) * b.at((k, n)) for k in range(5)) for m, n in positions((3, 4))]
    assert_same_bits(ops.matmul(*a.args, *b.args), finished(acc, (3, 4), a.scale, b.scale, None))


def test_matmul_of_batches() -> None:
    """Batch dimensions broadcast, and each matrix is what it is alone."""
    a, b = operand(2, 3, 4, 5), operand(5, 6, scale_shape=(1, 6))
    y = ops.matmul(*a.args, *b.args)
    flat = a.scale[0, 0], a.zero_point[0, 0]
    for i, j in positions((2, 3)):
        one = ops.matmul(a.q[i, j], flat[0].view(1, 1), flat[1].view(1, 1), *b.args)
        assert_same_bits(y[i, j], one)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("x_scale", "w_scale"), [((1, 1), (1, 1)), ((1, 1), (4, 1)), ((3, 1), (4, 1))]
)
def test_linear(x_scale: Index, w_scale: Index, *, with_bias: bool) -> None:
    """Per tensor, per output channel and per token, with and without a bias."""
    x, w = operand(3, 7, scale_shape=x_scale, dtype="uint8"), operand(4, 7, scale_shape=w_scale)
    bias = torch.randn(4) if with_bias else None
    acc = [sum(x.at((n, i)) * w.at((o, i)) for i in range(7)) for n, o in positions((3, 4))]
    wanted = finished(acc, (3, 4), x.scale, w.scale.reshape(1, -1), bias)
    assert_same_bits(ops.linear(*x.args, *w.args, bias), wanted)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("groups", [2, 3, 6])
def test_linear_with_weights_per_group(groups: int, *, with_bias: bool) -> None:
    """Each group is finished on its own; their float32 sum starts at 0 and takes them in order."""
    x, w = operand(3, 6), operand(4, 6, scale_shape=(4, groups), dtype="int4")
    bias = torch.randn(4) if with_bias else None
    y = np.zeros((3, 4), np.float32)
    for group in range(groups):
        span = range(group * 6 // groups, (group + 1) * 6 // groups)
        acc = [sum(x.at((n, i)) * w.at((o, i)) for i in span) for n, o in positions((3, 4))]
        y += finished(acc, (3, 4), x.scale, w.scale[:, group], None).numpy()
    wanted = torch.from_numpy(y if bias is None else y + bias.numpy())
    assert_same_bits(ops.linear(*x.args, *w.args, bias), wanted)


def test_linear_takes_any_number_of_leading_dimensions() -> None:
    """x (I), (N, I) and (B, N, I) give the same rows."""
    x, w, bias = operand(2, 3, 7), operand(4, 7, scale_shape=(4, 1)), torch.randn(4)
    y = ops.linear(*x.args, *w.args, bias)
    flat = ops.linear(x.q.view(6, 7), x.scale[0], x.zero_point[0], *w.args, bias)
    assert_same_bits(y.view(6, 4), flat)
    one = ops.linear(x.q[0, 0], x.scale[0, 0], x.zero_point[0, 0], *w.args, bias)
    assert_same_bits(y[0, 0], one)


def test_sums_beyond_float32_are_exact() -> None:
    """The sum is exact in integers where float32 would round on the way."""
    q = torch.full((1, 70_000), 127, dtype=torch.int8)
    q[0, -1] = 1
    one, zero = torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int32)
    y = ops.linear(q, one, zero, q, one, zero, None)
    assert y.item() == np.float32(69_999 * 127 * 127 + 1)


# --- Convolution ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Geometry:
    """How a convolution slides."""

    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    output_padding: int = 0

    def many(self, dims: int) -> tuple[list[int], list[int], list[int], list[int]]:
        """Stride, padding, dilation and output padding, one each per dimension."""
        values = (self.stride, self.padding, self.dilation, self.output_padding)
        stride, padding, dilation, output = ([value] * dims for value in values)
        return stride, padding, dilation, output


GEOMETRIES = [
    Geometry(),
    Geometry(stride=2, padding=1),
    Geometry(padding=2, dilation=2),
    Geometry(groups=2, padding=1),
    Geometry(groups=4, stride=2, padding=1, dilation=2),
]


def conv_sums(x: Operand, w: Operand, out: Index, g: Geometry) -> list[int]:
    """acc[n, o, p] = sum of x[n, c, p * stride - padding + k * dilation] * w[o, c, k] over c, k."""
    per_group, outputs = w.q.shape[1], w.q.shape[0] // g.groups
    sums = []
    for n, o, *place in positions(out):
        total = 0
        for c, *k in positions(tuple(w.q.shape[1:])):
            at = [p * g.stride - g.padding + i * g.dilation for p, i in zip(place, k, strict=True)]
            total += x.at((n, o // outputs * per_group + c, *at)) * w.at((o, c, *k))
        sums.append(total)
    return sums


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_conv(dims: int, geometry: Geometry) -> None:
    """1 to 3 dimensions, stride, padding (exact zeros), dilation, groups, per output channel."""
    side = {1: 9, 2: 6, 3: 4}[dims]
    x = operand(1, 4, *[side] * dims, dtype="uint8")
    kernel = [3 if dims < 3 else 2] * dims
    w = operand(4, 4 // geometry.groups, *kernel, scale_shape=(4, *[1] * (dims + 1)))
    bias, (stride, padding, dilation, _) = torch.randn(4), geometry.many(dims)
    y = ops.conv(*x.args, *w.args, bias, stride, padding, dilation, geometry.groups)
    channels = (1, -1, *[1] * dims)
    acc = conv_sums(x, w, tuple(y.shape), geometry)
    wanted = finished(acc, y.shape, x.scale, w.scale.view(channels), bias.view(channels))
    assert_same_bits(y, wanted)


def transposed_sums(x: Operand, w: Operand, out: Index, g: Geometry) -> list[int]:
    """Each x[n, c, p] adds x * w[c, o, k] at p * stride - padding + k * dilation."""
    sums = np.zeros(out, dtype=object)
    inputs, outputs = w.q.shape[0] // g.groups, w.q.shape[1]
    for n, c, *place in positions(tuple(x.q.shape)):
        for o, *k in positions(tuple(w.q.shape[1:])):
            at = [p * g.stride - g.padding + i * g.dilation for p, i in zip(place, k, strict=True)]
            if all(0 <= i < size for i, size in zip(at, out[2:], strict=True)):
                channel = c // inputs * outputs + o
                there = (n, channel, *at)
                sums[there] += x.at((n, c, *place)) * w.at((c, o, *k))
    totals: list[int] = sums.flatten().tolist()
    return totals


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "geometry", [*GEOMETRIES, Geometry(stride=2, output_padding=1, groups=2)], ids=str
)
def test_conv_transpose(dims: int, geometry: Geometry) -> None:
    """The same for the transposed convolution, with output padding; weight (C, O / groups, ...)."""
    side = {1: 7, 2: 4, 3: 3}[dims]
    x = operand(1, 4, *[side] * dims, dtype="uint8")
    kernel = [3 if dims < 3 else 2] * dims
    outputs = 4 // geometry.groups
    w = operand(4, outputs, *kernel, scale_shape=(1, outputs, *[1] * dims))
    bias, (stride, padding, dilation, output) = torch.randn(4), geometry.many(dims)
    y = ops.conv_transpose(
        *x.args, *w.args, bias, stride, padding, output, geometry.groups, dilation
    )
    channels = (1, -1, *[1] * dims)
    w_scale = w.scale.reshape(-1).repeat(geometry.groups).view(channels)
    acc = transposed_sums(x, w, tuple(y.shape), geometry)
    assert_same_bits(y, finished(acc, y.shape, x.scale, w_scale, bias.view(channels)))


def test_conv_per_tensor_without_bias_or_batch() -> None:
    """One scale for the whole weight, no bias, and an image without a batch dimension."""
    x, w = operand(1, 3, 5, 5), operand(2, 3, 3, 3)
    y = ops.conv(*x.args, *w.args, None, [1, 1], [1, 1], [1, 1], 1)
    acc = conv_sums(x, w, (1, 2, 5, 5), Geometry(padding=1))
    assert_same_bits(y, finished(acc, (1, 2, 5, 5), x.scale, w.scale, None))
    one = ops.conv(x.q[0], x.scale[0], x.zero_point[0], *w.args, None, [1, 1], [1, 1], [1, 1], 1)
    assert_same_bits(one, y[0])


def test_no_sum_is_minus_zero() -> None:
    """The product of zero and a negative integer is 0, as integers have it, also where K is 1."""
    zero, one = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, 1)
    q, w = torch.zeros(5, 1, dtype=torch.int8), torch.full((7, 1), -3, dtype=torch.int8)
    assert_same_bits(ops.linear(q, one, zero, w, one, zero), torch.zeros(5, 7))
    assert_same_bits(ops.matmul(q, one, zero, w.t(), one, zero), torch.zeros(5, 7))
    scale, point = one.view(1, 1, 1, 1), zero.view(1, 1, 1, 1)
    image, kernel = q.view(5, 1, 1, 1), w.view(7, 1, 1, 1)
    y = ops.conv(image, scale, point, kernel, scale, point, None, [1, 1], [0, 0], [1, 1], 1)
    assert_same_bits(y, torch.zeros(5, 7, 1, 1))
