"""Integer steps: the formula of each behind its name, in its order of arguments."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.graph.check import check
from halfstep.graph.edges import Edge
from halfstep.graph.integer_ops import INTEGER
from halfstep.graph.operators import is_removable, resolve
from halfstep.graph.program import Input, Program, Step
from halfstep.graph.run import Plan
from halfstep.graph.trees import Branch, Value, is_plain
from halfstep.spec import PerChannel, PerGroup, PerToken, QSpec, int4, int8, int16, uint8, uint16
from halfstep.tensor import QTensor, from_int_repr, quantize
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, edges

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


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@DTYPES
def test_two_operands_near_ties(op: str, dtype: Any) -> None:
    """The float32 of the formula, clamped and requantized; shapes broadcast."""
    a_edge, b_edge = Edge(QSpec(dtype), SX, 20), Edge(QSpec(int8), SX * 2, -3)
    a, b = near_ties((2, 4, 3, 3), 20, dtype.storage), near_ties((4, 1, 1), -3, torch.int8)
    da, db = a.to(torch.int64).numpy() - 20, b.to(torch.int64).numpy() + 3
    f = np.float32
    if op == "mul":
        y = ((da * db).astype(f) * f(SX)) * f(2 * SX)
    else:
        y = da.astype(f) * f(SX) + (1 if op == "add" else -1) * (db.astype(f) * f(2 * SX))
    y = np.maximum(y, f(-0.15))
    assert_same_bits(run(op, a, a_edge, b, b_edge, (-0.15, None), None), torch.from_numpy(y))
    out = Edge(QSpec(dtype), SX * 2, 50)
    codes = np.clip(np.rint(y * (f(1) / f(out.scale)) + f(50)), out.qmin, out.qmax)
    found = run(op, a, a_edge, b, b_edge, (-0.15, None), out)
    assert found.dtype == dtype.storage
    assert torch.equal(found.double(), torch.from_numpy(codes).double())


@DTYPES
def test_cat(dtype: Any) -> None:
    """A part of the same format keeps its codes; another is rounded to the new steps."""
    out = Edge(QSpec(dtype), 0.013, dtype.qmin + 30)
    same = torch.randint(dtype.qmin, dtype.qmax + 1, (2, 500)).to(dtype.storage)
    other = torch.randint(0, 256, (2, 3)).to(torch.uint8)
    source = Edge(QSpec(uint8), 0.7, 128)
    found = run("cat", (same, other), (out, source), 1, out)
    assert found.dtype == dtype.storage
    assert torch.equal(found[:, :500].to(torch.int64), same.to(torch.int64))
    inverse = 1 / torch.tensor(0.013)
    wanted = (run("dequantize", other, source) * inverse + out.zero_point).round()
    assert torch.equal(found[:, 500:].float(), wanted.clamp(out.qmin, out.qmax))
    floats = run("cat", (same, other), (out, source), -1, None)
    assert_same_bits(floats[:, 500:], run("dequantize", other, source))


@QUICK
@given(edge=edges())
def test_there_and_back(edge: Edge) -> None:
    """Dequantized codes quantize to themselves, in every format up to 16 bits."""
    codes = torch.arange(edge.qmin, edge.qmax + 1).to(edge.storage)
    found = run("quantize", run("dequantize", codes, edge), edge)
    assert torch.equal(found.to(torch.int32), codes.to(torch.int32))


@DTYPES
def test_windows(dtype: Any) -> None:
    """Pools and means give codes of the asked format, near the float ones by half a step."""
    edge, out = Edge(QSpec(dtype), 0.02, 5), Edge(QSpec(dtype), 0.03, 7)
    x = run("quantize", torch.rand(2, 3, 6, 6), edge)
    floats = run("dequantize", x, edge)
    pairs = [
        (
            run("avg_pool", x, edge, (3, 3), (2, 2), (1, 1), True, False, None, out),
            F.avg_pool2d(floats, 3, 2, 1, True, False),
        ),
        (run("adaptive_avg_pool", x, edge, (1, 1), out), F.adaptive_avg_pool2d(floats, 1)),
        (run("mean", x, edge, (2, 3), True, out), floats.mean((2, 3), keepdim=True)),
    ]
    for codes, true in pairs:
        assert codes.dtype == dtype.storage
        assert (run("dequantize", codes, out) - true).abs().max() <= 0.0150001
    assert_same_bits(
        run("mean", x, edge, None, False, None), run("mean", x, edge, (0, 1, 2, 3), False, None)
    )


def test_floats_are_contiguous() -> None:
    """Whatever the memory format of the codes; and codes may have any."""
    edge = Edge(QSpec(uint8), 0.1, 5)
    x = run("quantize", torch.randn(2, 4, 5, 5), edge)
    last = x.contiguous(memory_format=torch.channels_last)
    weight = weight_of(6, 4, 3, 3)
    window = ((1, 1), (0, 0), (1, 1), 1)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("dequantize", (edge,)),
        ("conv", (edge, weight, None, *window, None, None, None, None)),
        ("add", (edge, x, edge, None, None)),
        ("avg_pool", (edge, (2, 2), (2, 2), (0, 0), False, True, None, None)),
        ("mean", (edge, (0,), False, None)),
    ]
    for name, rest in calls:
        found = run(name, last, *rest)
        assert found.is_contiguous(), name
        assert_same_bits(found, run(name, x, *rest))


# --- Rows and weights ----------------------------------------------------------------------------


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


def test_weights_in_and_out() -> None:
    """A weight that is computed is quantized once; one that floats read is dequantized."""
    w = nn.Parameter(torch.randn(3, 4))
    q = run("quantize_weight", w, PER_ROW)
    assert isinstance(q, QTensor)
    assert_same_bits(run("dequantize_weight", q), quantize(w.detach(), PER_ROW).dequantize())


def test_embeddings() -> None:
    """Rows as float32, and bags as torch sums them."""
    weight = quantize(torch.randn(9, 4), QSpec(uint8, PerChannel(0)))
    indices, offsets = torch.tensor([1, 8, 8, 0]), torch.tensor([0, 1])
    assert_same_bits(run("embedding", weight, indices), weight.dequantize()[indices])
    found = run("embedding_bag", weight, indices, offsets, 1, None, False, -1)
    torch.testing.assert_close(found, F.embedding_bag(indices, weight.dequantize(), offsets))


def test_no_gradient_goes_through() -> None:
    """A bias that could train makes no result that could."""
    edge, bias = Edge(QSpec(uint8), 0.1, 5), nn.Parameter(torch.ones(4))
    x = run("quantize", torch.randn(2, 3, requires_grad=True), edge)
    y = run("linear", x, edge, weight_of(4, 3), bias, None, None, None, None)
    assert not y.requires_grad


# --- In a program --------------------------------------------------------------------------------


def example() -> tuple[Program, nn.Module]:
    """relu(linear(x)) in integers, over a module whose weight is quantized."""
    module = nn.Linear(6, 4)
    module.weight = nn.Parameter(quantize(module.weight.detach(), PER_ROW), requires_grad=False)
    x, out = Edge(QSpec(uint8), 0.05, 128), Edge(QSpec(uint8), 0.02, 0)
    q, w, b, y = Value("x_q"), Value("w"), Value("b"), Value("y_q")
    steps = (
        Step("x_q", "int.quantize", (Value("x"), x)),
        Step("y_q", "int.linear", (q, x, w, b, None, None, (0.0, None), out)),
        Step("y", "int.dequantize", (y, out)),
    )
    arguments = Branch(dict, ("input",), (Value("x"),))
    inputs = (Input(Value("x"), "float32", 2),)
    parameters = {"w": "weight", "b": "bias"}
    return Program(inputs, arguments, Value("y"), steps, parameters), module


def test_a_program_of_integer_steps_runs() -> None:
    """It passes the check, prints, pickles, and gives what the layer gives."""
    program, module = example()
    check(program, module)
    assert "y_q = int.linear(x_q, uint8(scale=0.05, zero_point=128), w, b" in str(program)
    program = pickle.loads(pickle.dumps(program))
    x = torch.rand(5, 6)
    given = Branch(dict, ("input",), (x,))
    y = Plan(program).run(module, given)
    assert (y - module(x).relu()).abs().max() < 0.1


def test_every_name_resolves_and_may_go_unread() -> None:
    """Integer steps change nothing in place."""
    for name, function in INTEGER.items():
        assert resolve(name) is function
        assert is_removable(name)
    with pytest.raises(ArgumentError, match=r"int\.none"):
        resolve("int.none")


def test_formats_are_plain_data() -> None:
    """Edges and specs may stand in a step."""
    assert is_plain(Edge(QSpec(uint8), 0.1, 0))
    assert is_plain(PER_ROW)
    assert not is_plain(torch.ones(1))
