"""Steps from codes to codes: sums, products, joins, means, in every format and layout."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.graph.integer_ops import INTEGER
from halfstep.spec import PerChannel, QSpec, int8, int16, uint8, uint16
from halfstep.tensor import quantize
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, edges

DTYPES = pytest.mark.parametrize("dtype", [int8, uint8, int16, uint16], ids=str)
SX = 0.1


def run(name: str, *args: Any) -> Any:
    """The integer step of that name."""
    return INTEGER[f"int.{name}"](*args)


def near_ties(shape: tuple[int, ...], zero_point: int, dtype: torch.dtype) -> Tensor:
    """Codes few steps from zero, whose sums are ties in half of the elements."""
    return (torch.randint(-2, 3, shape) + zero_point).to(dtype)


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
    spec = QSpec(int8, PerChannel(0), symmetric=True)
    weight = quantize(torch.randn(6, 4, 3, 3), spec)
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
