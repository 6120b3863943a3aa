"""Products of quantized tensors are the exact sums of integers, scaled as the contract says."""

from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs
from halfstep import PerChannel, PerGroup, PerTensor, PerToken, QSpec, QTensor


def quantized(*shape: int, spec: QSpec) -> QTensor:
    """Random integers over the whole format, with scales and zero points of their own."""
    spec = spec.normalized(len(shape))
    wanted = spec.granularity.scale_shape(shape)
    ints = torch.randint(spec.qmin, spec.qmax + 1, shape)
    zero_point = torch.zeros(wanted, dtype=torch.int32)
    if not spec.symmetric:
        zero_point = torch.randint(spec.qmin, spec.qmax + 1, wanted, dtype=torch.int32)
    return hs.from_int_repr(ints, spec, scale=torch.rand(wanted) + 0.01, zero_point=zero_point)


def centred(q: QTensor) -> Tensor:
    """q - zero_point in int64."""
    return q.int_repr().long() - q.zero_point


def finished(acc: Tensor, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """(float(acc) * sx) * sw + bias, each operation rounded to float32."""
    y = (acc.float() * x_scale) * w_scale
    return y if bias is None else y + bias


@pytest.mark.parametrize("x_granularity", [PerTensor(), PerToken(), PerChannel(0)])
@pytest.mark.parametrize("w_granularity", [PerTensor(), PerChannel(0)])
@pytest.mark.parametrize("codes", [hs.int2, hs.int4, hs.int8])
def test_linear(x_granularity: Any, w_granularity: Any, codes: hs.QDType) -> None:
    """linear: exact int64 sums of what the integers stand for, then two products and the bias."""
    x = quantized(5, 24, spec=QSpec(hs.uint8, x_granularity))
    w = quantized(7, 24, spec=QSpec(codes, w_granularity, symmetric=True))
    bias = torch.randn(7)
    expected = finished(centred(x) @ centred(w).t(), x.scale, w.scale.reshape(-1), bias)
    assert torch.equal(F.linear(x, w, bias), expected)


def test_linear_per_group() -> None:
    """Groups along the summed axis: the float32 sum over the groups of their exact sums."""
    x, w = (
        quantized(3, 8, spec=QSpec(hs.int8)),
        quantized(5, 8, spec=QSpec(hs.int4, PerGroup(1, 4))),
    )
    expected = torch.zeros(3, 5)
    for group in range(2):
        cut = slice(4 * group, 4 * group + 4)
        steps = w.int_repr().long()[:, cut] - w.zero_point[:, group : group + 1]
        expected += finished(centred(x)[:, cut] @ steps.t(), x.scale, w.scale[:, group])
    assert torch.equal(F.linear(x, w), expected)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 0), (2, 0, 5)),
    ],
)
def test_matmul_shapes(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    """Vectors, matrices and batches: the exact product in torch's own shape."""
    a, b = quantized(*a_shape, spec=QSpec(hs.uint8)), quantized(*b_shape, spec=QSpec(hs.int8))
    acc = torch.matmul(centred(a), centred(b))
    expected = finished(acc, a.scale.reshape(()), b.scale.reshape(()))
    with hs.no_fallback():
        assert torch.equal(a @ b, expected)
        assert torch.equal(torch.matmul(input=a, other=b), expected)


def test_products_by_name() -> None:
    """mm, bmm, mv and dot are integers too, and refuse the shapes that torch refuses."""
    a, b = quantized(3, 4, spec=QSpec(hs.int8)), quantized(4, 5, spec=QSpec(hs.int8, PerChannel(1)))
    with hs.no_fallback():
        assert torch.equal(torch.mm(a, b), a @ b)
        assert torch.equal(torch.mv(a, b[:, 0]), a @ b[:, 0])
        assert torch.equal(torch.dot(a[0], b[:, 1]), a[0] @ b[:, 1])
        assert torch.equal(torch.bmm(a[None], b[None])[0], a @ b)
    for name, operands in {"mm": (a[0], b), "dot": (a, b), "bmm": (a, b)}.items():
        with pytest.raises(RuntimeError):
            getattr(torch, name)(*operands)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (QSpec(hs.int8, PerChannel(1)), QSpec(hs.int8)),
        (QSpec(hs.int8), QSpec(hs.int8, PerGroup(0, 2))),
        (QSpec(hs.int8), QSpec(hs.uint8, float_zero_point=True)),
    ],
)
def test_scales_along_the_sum_give_floats(a: QSpec, b: QSpec) -> None:
    """Where a scale changes along the summed axis, the floats' product is the answer."""
    left, right = hs.quantize(torch.randn(3, 4), a), hs.quantize(torch.randn(4, 6), b)
    assert torch.equal(left @ right, left.dequantize() @ right.dequantize())


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")  # of the floats
@pytest.mark.parametrize("padding", [0, 1, "same", "valid"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_conv(padding: Any, groups: int, spatial: int) -> None:
    """Convolutions: exact int64 sums, per output channel, also without a batch dimension."""
    x = quantized(2, 4, *[6] * spatial, spec=QSpec(hs.uint8))
    w = quantized(6, 4 // groups, *[4, 3, 2][:spatial], spec=QSpec(hs.int8, PerChannel(0)))
    conv, bias = getattr(F, f"conv{spatial}d"), torch.randn(6)
    acc = conv(centred(x).double(), centred(w).double(), padding=padding, groups=groups)
    ones = [1] * spatial
    expected = finished(
        acc, x.scale.reshape(()), w.scale.reshape(-1, *ones), bias.reshape(-1, *ones)
    )
    with hs.no_fallback():
        assert torch.equal(conv(x, w, bias, padding=padding, groups=groups), expected)
        alone = conv(x[0], w, bias, 1, padding, 1, groups)
    assert torch.equal(alone, expected[0])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_conv_transpose(groups: int, spatial: int) -> None:
    """Transposed convolutions: exact, w's scale along its axis 1."""
    x = quantized(2, 4, *[4] * spatial, spec=QSpec(hs.uint8))
    w = quantized(4, 3, *[3] * spatial, spec=QSpec(hs.int8, PerChannel(1)))
    conv = getattr(F, f"conv_transpose{spatial}d")
    window = {"stride": 2, "padding": 1, "output_padding": 1, "groups": groups}
    acc = conv(centred(x).double(), centred(w).double(), **window)
    w_scale = w.scale.reshape(-1).repeat(groups).reshape(-1, *[1] * spatial)
    with hs.no_fallback():
        assert torch.equal(conv(x, w, **window), finished(acc, x.scale.reshape(()), w_scale))


def test_conv_refuses_what_torch_refuses() -> None:
    """A padding by a name that torch has not, or "same" with a stride, is torch's error."""
    x, w = quantized(1, 1, 5, 5, spec=QSpec(hs.uint8)), quantized(1, 1, 3, 3, spec=QSpec(hs.int8))
    for kwargs in ({"padding": "full"}, {"padding": "same", "stride": 2}):
        with pytest.raises((RuntimeError, ValueError)):
            F.conv2d(x, w, **kwargs)


def test_one_column_in_groups_along_the_rows() -> None:
    """A weight (O, 1) in groups along O has scales that are neither per tensor nor per channel."""
    w = hs.quantize(torch.randn(4, 1), QSpec(hs.int8, PerGroup(0, 2)))
    x = hs.quantize(torch.randn(3, 1), hs.int8)
    assert torch.allclose(F.linear(x, w), F.linear(x.dequantize(), w.dequantize()), atol=1e-6)


def test_long_sums_are_exact() -> None:
    """A sum of 70 000 products of the greatest codes, which float32 would round."""
    a = hs.from_int_repr(torch.full((1, 70_001), 255), hs.uint8, scale=1.0, zero_point=0)
    b = hs.from_int_repr(torch.full((70_001, 1), 127), hs.int8, scale=1.0, zero_point=0)
    exact = Fraction(255 * 127 * 70_001)
    assert (a @ b).item() == torch.tensor(int(exact), dtype=torch.float64).float().item()


def test_modules_with_quantized_weights() -> None:
    """nn.Linear, Conv2d and Embedding run with a quantized Parameter, on floats or integers."""
    for module, shape in (
        (nn.Linear(8, 4), (3, 8)),
        (nn.Conv2d(8, 4, 3), (2, 8, 6, 6)),
        (nn.ConvTranspose1d(8, 4, 3), (2, 8, 6)),
    ):
        x, floats = torch.randn(shape), module.weight.detach()
        q = hs.quantize(floats, QSpec(hs.int8, PerChannel(0), symmetric=True))
        module.weight = nn.Parameter(q, requires_grad=False)
        with_quantized = module(x)
        module.weight = nn.Parameter(q.dequantize())
        assert torch.equal(with_quantized, module(x))
    table = nn.Embedding(10, 4)
    q = hs.quantize(table.weight.detach(), hs.int4, axis=0)
    table.weight = nn.Parameter(q, requires_grad=False)
    rows = torch.tensor([[1, 9], [0, 0]])
    assert torch.equal(table(rows), q.dequantize()[rows])
    bag = nn.EmbeddingBag(10, 4, mode="sum")
    bag.weight = nn.Parameter(q, requires_grad=False)
    assert torch.allclose(bag(rows), q.dequantize()[rows].sum(1))


def test_gradients_pass_by_and_through() -> None:
    """The gradient reaches the float input, the bias, and a quantized weight that asks for one."""
    x, w = torch.randn(3, 8, requires_grad=True), hs.quantize(torch.randn(4, 8), hs.int8, axis=0)
    bias = torch.zeros(4, requires_grad=True)
    F.linear(x, w, bias).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, w.dequantize().sum(0).expand(3, 8))
    weight = nn.Parameter(w)
    (F.linear(x, weight, bias) * 2).sum().backward()
    assert weight.grad is not None
    assert torch.allclose(weight.grad, 2 * x.detach().sum(0).expand(4, 8))
    quantized_x = hs.quantize(x.detach(), hs.int8)
    bias.grad = None
    F.linear(quantized_x, w, bias).sum().backward()
    assert bias.grad is not None
    assert torch.equal(bias.grad, torch.full((4,), 3.0))
