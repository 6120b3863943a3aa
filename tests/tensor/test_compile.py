"""Quantized tensors in torch.compile and torch.export: the same integers, the axis findable."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs
from halfstep import PerChannel, PerGroup, PerToken, QSpec, QTensor

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "transpose": lambda t: t.transpose(0, 1),
    "reshape": lambda t: t.reshape(2, 4, 6),
    "slice": lambda t: t[:, 1:3],
    "select": lambda t: t[0],
    "chunk": lambda t: t.chunk(2, 1)[1],
    "relu": lambda t: t.relu(),
    "clamp": lambda t: t.clamp(-0.5, 0.5),
    "add": lambda t: t + t,
    "add number": lambda t: t + 1.5,
    "mul": lambda t: t * t,
    "scale": lambda t: t * 2,
    "neg": lambda t: -t,
    "cat": lambda t: torch.cat([t, t], 1),
    "pad": lambda t: F.pad(t, (1, 1)),
    "matmul": lambda t: t @ t.mT,
    "sum": lambda t: t.sum((2, 3)),
    "softmax": lambda t: F.softmax(t, -1),
    "exp": lambda t: t.exp(),
    "dequantize": lambda t: t.dequantize() + 1,
    "int_repr": lambda t: t.int_repr(),
    "by hand": lambda t: (t.int_repr() - t.zero_point) * t.scale,
    "chain": lambda t: (t.relu() * 2).flatten(2) + 1,
    "bfloat16": lambda t: t.to(torch.bfloat16),
}


def assert_same(found: Any, expected: Any) -> None:
    """Equal, and quantized where the other is."""
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize(
    "spec", [QSpec(hs.int8, PerChannel(1)), QSpec(hs.uint4, PerToken())], ids=repr
)
def test_compile(name: str, spec: QSpec) -> None:
    """fullgraph compilation gives what eager gives."""
    torch.compiler.reset()
    function, q = FUNCTIONS[name], hs.quantize(torch.randn(2, 4, 2, 3), spec)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert_same(compiled(q), function(q))


def test_compile_refits_by_value() -> None:
    """One compiled sum keeps qparams where the result fits and changes them where it does not."""
    torch.compiler.reset()
    compiled = torch.compile(lambda t: t + t, fullgraph=True, backend="aot_eager")
    for value in (10, 100):
        q = hs.from_int_repr(torch.tensor([value, -value]), hs.int8, scale=1.0, zero_point=0)
        assert_same(compiled(q), q + q)


def test_compile_quantizes() -> None:
    """hs.quantize itself compiles, and what it makes leaves the graph as a QTensor."""
    torch.compiler.reset()
    spec, x = QSpec(hs.int8, PerChannel(0)), torch.randn(4, 6)
    compiled = torch.compile(
        lambda t: hs.quantize(t, spec).relu(), fullgraph=True, backend="aot_eager"
    )
    assert_same(compiled(x), hs.quantize(x, spec).relu())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_inductor() -> None:
    """The default backend: integers in, a view, a sum and a product, equal to eager."""
    torch.compiler.reset()
    q = hs.quantize(torch.randn(4, 6), hs.int8, axis=0)
    compiled = torch.compile(lambda t: (t.relu() + t).t(), fullgraph=True)
    found, expected = compiled(q), (q.relu() + q).t()
    assert_same(found, expected)
    assert found.axis == 1


@pytest.mark.slow
def test_dynamic_shapes() -> None:
    """One compiled program serves several sizes, whatever the granularity."""
    torch.compiler.reset()

    def function(t: Tensor) -> Tensor:
        return (t.transpose(0, 1) + 1).relu()

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for granularity in (PerChannel(0), PerToken(), PerGroup(1, 2)):
        for rows in (4, 7):
            q = hs.quantize(torch.randn(rows, 6), QSpec(hs.int8, granularity))
            assert_same(compiled(q), function(q))


class Net(nn.Module):
    """Three layers whose weights are quantized in different ways."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear, self.table = nn.Conv2d(3, 4, 3), nn.Linear(4, 8), nn.Embedding(9, 4)
        specs: dict[Any, QSpec] = {
            self.conv: QSpec(hs.int8, PerChannel(0), symmetric=True),
            self.linear: QSpec(hs.int4, PerGroup(1, 2), symmetric=True),
            self.table: QSpec(hs.uint8, PerChannel(0)),
        }
        for layer, spec in specs.items():
            weight = hs.quantize(layer.weight.detach(), spec)
            layer.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        """An image and the rows of a table, added."""
        result: Tensor = self.linear(self.conv(x).mean((2, 3)) + self.table(rows))
        return result


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_export() -> None:
    """An exported program computes the same, and its state says each weight's format and axis."""
    net, inputs = Net().eval(), (torch.randn(2, 3, 6, 6), torch.tensor([1, 8]))
    program = torch.export.export(net, inputs)
    assert torch.equal(program.module()(*inputs), net(*inputs))
    axes = {
        name: value.axis for name, value in program.state_dict.items() if isinstance(value, QTensor)
    }
    assert axes == {"conv.weight": 0, "linear.weight": 1, "table.weight": 0}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_export_saved_and_loaded() -> None:
    """After run_decompositions a program of plain tensors is saved, loaded, and the same."""
    net, inputs = Net().eval(), (torch.randn(2, 3, 6, 6), torch.tensor([1, 8]))
    program = torch.export.export(net, inputs).run_decompositions({})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert torch.allclose(loaded.module()(*inputs), net(*inputs), atol=1e-6)
