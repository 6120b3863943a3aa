"""The same integers as PyTorch's own quantized tensors, while there are any.

PyTorch multiplies by a rounded 1 / scale and may add the zero point before rounding, so its
integers may differ from ours by one, and only where x / scale lies within one ulp of a tie.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from halfstep.numerics import ops

pytestmark = [
    pytest.mark.skipif(
        not hasattr(torch, "quantize_per_tensor"),
        reason="this PyTorch has no quantized tensors: the golden vectors take over",
    ),
]
STORAGES = {"qint8": torch.int8, "quint8": torch.uint8, "qint32": torch.int32}


@pytest.fixture(autouse=True)
def deprecation_allowed() -> Iterator[None]:
    """PyTorch warns that quantized tensors will be removed, which is why these tests exist."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def near_a_tie(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Where x / scale lies within one float32 ulp (of it, or of it plus zero point) of a tie."""
    steps = x.double() / scale.double()
    widest = torch.maximum(steps.abs(), (steps + zero_point.double()).abs()).float()
    ulp = torch.nextafter(widest, torch.tensor(torch.inf)) - widest
    return ((steps % 1) - 0.5).abs() <= ulp.double()


def assert_same_integers(
    ours: Tensor, theirs: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor
) -> None:
    """Equal, or one apart next to a tie."""
    off = (ours.long() - theirs.long()).abs()
    excused = near_a_tie(x, scale, zero_point)
    assert not off[~excused].any()
    assert off.max() <= 1


def inputs() -> Tensor:
    """Values over many magnitudes, multiples of half a step, and infinities."""
    x = torch.randn(3, 8, 50)
    x[0] *= torch.exp2(torch.randint(-10, 8, (8, 50)).float())
    x[1] = torch.randint(-60, 60, (8, 50)) * 0.05
    x[2, 0, :2] = torch.tensor([torch.inf, -torch.inf])
    return x


@pytest.mark.parametrize("name", STORAGES)
@pytest.mark.parametrize("scale", [0.1, 0.05, 0.25, 1.7, 1e-3])
@pytest.mark.parametrize("zero_point", [0, 3, 100])
def test_per_tensor(name: str, scale: float, zero_point: int) -> None:
    """torch.quantize_per_tensor, for each of its dtypes."""
    x, storage = inputs(), STORAGES[name]
    if name == "qint32":
        x = x.clamp(-100, 100)  # PyTorch overflows where it should saturate
    theirs = torch.quantize_per_tensor(x, scale, zero_point, getattr(torch, name))
    step, zero = torch.full((1, 1, 1), scale), torch.full((1, 1, 1), zero_point).int()
    info = torch.iinfo(storage)
    ours = ops.quantize(x, step, zero, info.min, info.max, storage)
    assert_same_integers(ours, theirs.int_repr(), x, step, zero)
    back = ops.dequantize(theirs.int_repr(), step, zero, torch.float32)
    # PyTorch may fuse q * scale - zero_point * scale, which moves by half an ulp of the larger.
    slack = abs(zero_point * scale) * 2.0**-23
    torch.testing.assert_close(back, theirs.dequantize(), rtol=2.0**-22, atol=slack)


@pytest.mark.parametrize("name", ["qint8", "quint8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(name: str, axis: int) -> None:
    """torch.quantize_per_channel, along each axis."""
    x, storage = inputs(), STORAGES[name]
    scale, zero = torch.rand(x.shape[axis]) * 0.2 + 0.01, torch.randint(0, 50, (x.shape[axis],))
    theirs = torch.quantize_per_channel(x, scale, zero, axis, getattr(torch, name))
    shape = [x.shape[axis] if dim == axis else 1 for dim in range(3)]
    step, offset = scale.view(shape), zero.view(shape).int()
    info = torch.iinfo(storage)
    ours = ops.quantize(x, step, offset, info.min, info.max, storage)
    assert_same_integers(ours, theirs.int_repr(), x, step, offset)
    back = ops.dequantize(theirs.int_repr(), step, offset, torch.float32)
    torch.testing.assert_close(back, theirs.dequantize(), rtol=2.0**-22, atol=2.0**-18)


@pytest.mark.parametrize(("name", "qmax"), [("quint8", 255), ("quint4x2", 15)])
def test_float_zero_point(name: str, qmax: int) -> None:
    """The float-zero-point form, which EmbeddingBag used with 8 and 4 bits, dequantizes alike."""
    x, rows = torch.rand(6, 32) * 3 + 1, torch.rand(6)
    scale, zero = rows * 0.1 + 0.2, -rows * 4 - 3.3
    theirs = torch.quantize_per_channel(x, scale, zero, 0, getattr(torch, name))
    step, offset = scale.view(-1, 1), zero.view(-1, 1)
    ours = ops.quantize(x, step, offset, 0, qmax, torch.uint8)
    ints = theirs.int_repr()
    if name == "quint4x2":
        ints = ops.unpack(ints.flatten(), 4, False, x.shape)
    off = (ours.long() - ints.long()).abs()
    assert off.max() <= 1
    assert off.sum() <= x.numel() // 100
    if name == "quint8":
        back = ops.dequantize(ints, step, offset, torch.float32)
        torch.testing.assert_close(back, theirs.dequantize())


@pytest.mark.parametrize("axis", [None, 1])
def test_fake_quantize(axis: int | None) -> None:
    """torch's fake-quantize gives the same values, and the same gradient, away from ties."""
    x = inputs().clamp(-1e3, 1e3).requires_grad_()  # PyTorch turns Inf into the lowest code
    grad = torch.randn(3, 8, 50)
    scale, zero = torch.rand(8) * 0.2 + 0.01, torch.randint(-20, 20, (8,)).int()
    shape: tuple[int, ...] = (1, 8, 1)
    theirs: Callable[..., Any] = torch.fake_quantize_per_channel_affine
    args: tuple[Any, ...] = (scale, zero, 1, -128, 127)
    if axis is None:
        shape, theirs = (1, 1, 1), torch.fake_quantize_per_tensor_affine
        scale, zero = scale[:1], zero[:1]
        args = (scale.item(), int(zero), -128, 127)
    y = theirs(x, *args)
    ours = ops.fake_quantize(x, scale.view(shape), zero.view(shape), -128, 127)
    away = ~near_a_tie(x.detach(), scale.view(shape), zero.view(shape))
    torch.testing.assert_close(ours[away], y[away])
    grads = [torch.autograd.grad(result, x, grad)[0] for result in (ours, y)]
    assert torch.equal(grads[0][away], grads[1][away])


def test_qparams_agree_with_the_old_observers() -> None:
    """MinMaxObserver's scale and zero point, to its float32 arithmetic, for the affine scheme."""
    observer = pytest.importorskip("torch.ao.quantization").MinMaxObserver
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(50, generator=generator) * 10 ** (seed % 5 - 2) + seed / 10
        old = observer(dtype=torch.qint8, qscheme=torch.per_tensor_affine)
        old(x)
        scale, zero = old.calculate_qparams()
        lo, hi = ops.min_max(x, (1,))
        ours = ops.choose_qparams(lo, hi, -128, 127, False)
        torch.testing.assert_close(ours[0], scale, rtol=2.0**-22, atol=0)
        assert (ours[1] - zero).abs() <= 1
