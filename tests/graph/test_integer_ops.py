"""Integer steps by name: in a program, on weights and rows of weights."""

import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from halfstep.errors import ArgumentError
from halfstep.graph.check import check
from halfstep.graph.edges import Edge
from halfstep.graph.integer_ops import INTEGER
from halfstep.graph.operators import is_removable, resolve
from halfstep.graph.program import Input, Program, Step
from halfstep.graph.run import Plan
from halfstep.graph.trees import Branch, Value, is_plain
from halfstep.spec import PerChannel, QSpec, int8, uint8
from halfstep.tensor import QTensor, quantize
from tests.assertions import assert_same_bits

PER_ROW = QSpec(int8, PerChannel(0), symmetric=True)


def run(name: str, *args: Any) -> Any:
    """The integer step of that name."""
    return INTEGER[f"int.{name}"](*args)


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
