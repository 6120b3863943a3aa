"""oneDNN's int8 primitives, as PyTorch ships them, compute exactly our integer formula."""

import os

import pytest
import torch
from torch import Tensor

from halfstep.numerics import ops

if not torch.backends.mkldnn.is_available():
    pytest.skip("this PyTorch is built without oneDNN", allow_module_level=True)
if not torch.cpu._is_vnni_supported() or "ONEDNN_MAX_CPU_ISA" in os.environ:
    pytest.skip(
        "without VNNI oneDNN takes other kernels, which round differently and may saturate",
        allow_module_level=True,
    )

ONEDNN = torch.ops.onednn
CONVS = [  # stride, padding, dilation, groups
    (1, 0, 1, 1),
    (1, 1, 1, 1),
    (2, 1, 1, 1),
    (1, 2, 2, 1),
    (1, 1, 1, 4),
    (1, 1, 1, 16),
]


SX, SW = 0.037, 0.0123
SY = 2 * SX * SW


def weight_scales(outputs: int) -> Tensor:
    """SW times 1/2, 1 or 2: so that sums times SX times these lie on and beside ties of SY."""
    return SW * torch.exp2(torch.randint(-1, 2, (outputs,)).float())


def biases(outputs: int) -> Tensor:
    """Small multiples of SX * SW, which keep the ties."""
    return torch.randint(-5, 6, (outputs,)).float() * (SX * SW)


def assert_near_ties(y: Tensor) -> None:
    """A fifth of the elements lie within 2^-18 of a tie: random values would prove nothing."""
    distance = ((y.double() / SY) % 1 - 0.5).abs()
    assert (distance < 2.0**-18 * (1 + y.abs() / SY)).float().mean() > 0.2


def per_tensor(value: float, zero_point: int, ndim: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point with all dimensions."""
    ones = (1,) * ndim
    return torch.full(ones, value), torch.full(ones, zero_point, dtype=torch.int32)


def ours(y: Tensor) -> Tensor:
    """Requantized to uint8 by the formula, with zero point 100."""
    assert_near_ties(y)
    return ops.requantize(y, *per_tensor(SY, 100, y.ndim), 0, 255, torch.uint8)


@pytest.mark.parametrize("zero_point", [0, 3, 128])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
def test_linear_equals_onednn(zero_point: int, *, with_bias: bool, per_channel: bool) -> None:
    """Equal codes for every element of a linear layer whose sums lie on and beside ties."""
    x, w_scale = torch.randint(0, 8, (64, 48), dtype=torch.uint8), weight_scales(32)
    w_scale = w_scale if per_channel else torch.tensor([SW])
    w = torch.randint(-3, 4, (32, 48), dtype=torch.int8)
    bias = biases(32) if with_bias else None
    packed = ONEDNN.qlinear_prepack(w, None)
    w_zero = torch.zeros(len(w_scale), dtype=torch.int32)
    theirs = ONEDNN.qlinear_pointwise(
        *(x, SX, zero_point, packed, w_scale, w_zero, bias),
        *(SY, 100, torch.uint8, "none", [], ""),
    )
    y = ops.linear(
        x, *per_tensor(SX, zero_point, 2), w, w_scale.view(-1, 1), w_zero.view(-1, 1), bias
    )
    assert torch.equal(ours(y), theirs)


@pytest.mark.parametrize("zero_point", [0, 3])
@pytest.mark.parametrize("conv", CONVS, ids=str)
def test_conv_equals_onednn(conv: tuple[int, int, int, int], zero_point: int) -> None:
    """Equal codes for every element: stride, padding, dilation, groups and depthwise."""
    stride, padding, dilation = ([value, value] for value in conv[:3])
    groups, w_scale = conv[3], weight_scales(16)
    x = torch.randint(0, 8, (2, 16, 9, 9), dtype=torch.uint8)
    w = torch.randint(-3, 4, (16, 16 // groups, 3, 3), dtype=torch.int8)
    bias = biases(16)
    packed = ONEDNN.qconv_prepack(
        w, w_scale, SX, zero_point, stride, padding, dilation, groups, list(x.shape)
    )
    w_zero = torch.zeros(16, dtype=torch.int32)
    theirs = ONEDNN.qconv2d_pointwise(
        *(x, SX, zero_point, packed, w_scale, w_zero, bias),
        *(stride, padding, dilation, groups, SY, 100, torch.uint8, "none", [], ""),
    )
    channels = (-1, 1, 1, 1)
    y = ops.conv(
        *(x, *per_tensor(SX, zero_point, 4), w, w_scale.view(channels), w_zero.view(channels)),
        *(bias, stride, padding, dilation, groups),
    )
    assert torch.equal(ours(y), theirs.contiguous())
