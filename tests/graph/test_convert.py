"""Conversion: the steps that an engine runs, fused and typed as it declares."""

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs
from halfstep.engines.reference import ReferenceEngine
from halfstep.flows import ptq
from halfstep.graph.convert import convert
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Quantized
from halfstep.spec import Capabilities, recipes

ALL = ReferenceEngine().capabilities
SEPARATE = dataclasses.replace(ALL, fuses_residual=False)


class Block(nn.Module):
    """A residual block whose one ReLU serves twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions around, and x."""
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class Function(nn.Module):
    """Two layers, and a function of them."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        """What the function returns."""
        return self.function(self, x)


def quantized(module: nn.Module, x: Tensor, recipe: Any = None) -> Quantized:
    """The one program of a model, calibrated on x."""
    torch.manual_seed(0)
    result = ptq.quantize(module, x, recipe, engine="reference", check="none")
    (part,) = vars(result.model)["forward"].programs
    assert isinstance(part, Quantized)
    return part


def steps(program: Program, op: str) -> list[Step]:
    """The steps of one operator."""
    return [step for step in program.steps if step.op == op]


def test_a_convolution_its_sum_and_its_relu_are_one_step() -> None:
    """Batch norm folded, residual and activation fused, codes in and out."""
    model = nn.Sequential(Block(), Block(), nn.Flatten(), nn.Linear(256, 2))
    part = quantized(model, torch.randn(4, 4, 8, 8))
    program = convert(part, ALL)
    assert [step.op for step in program.steps] == [
        *("int.quantize", "int.conv", "int.conv", "int.conv", "int.conv"),
        *("aten.flatten.using_ints", "int.linear"),
    ]
    *_, before, _, last = steps(program, "int.conv")
    assert last.args[10] == (0.0, None)
    assert last.args[11] == part.edges[last.name.removesuffix("_q")]
    assert last.args[8].name == before.name


def test_an_engine_that_adds_apart_gets_a_sum_of_its_own() -> None:
    """The convolution's result is then an edge, as it was observed."""
    model = nn.Sequential(Block(), Block(), nn.Flatten(), nn.Linear(256, 2))
    part = quantized(model, torch.randn(4, 4, 8, 8))
    program = convert(part, SEPARATE)
    assert [step.args[4] for step in steps(program, "int.add")] == [(0.0, None)] * 2
    assert all(step.args[8] is None for step in steps(program, "int.conv"))


def test_a_broadcast_sum_is_not_fused() -> None:
    """A residual has the shape of what it is added to."""
    model = Function(lambda m, x: m.b(m.a(x) + m.a(x)[:1]))
    program = convert(quantized(model, torch.randn(4, 8)), ALL)
    assert len(steps(program, "int.add")) == 1


def test_a_value_is_quantized_once() -> None:
    """Layers that read the same float share its codes, and the rows of it."""
    model = Function(lambda m, x: (m.a(x.sin()), m.b(x.sin())))
    shared = Function(lambda m, x: _both(m, x.sin()))
    x = torch.randn(4, 8)
    assert len(steps(convert(quantized(model, x), ALL), "int.quantize")) == 2
    assert len(steps(convert(quantized(shared, x), ALL), "int.quantize")) == 1
    rows = convert(quantized(shared, x, recipes.dynamic_int8()), ALL)
    assert len(steps(rows, "int.quantize_rows")) == 1


def _both(module: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return module.a(x), module.b(x)


def test_a_value_read_as_codes_and_as_floats_is_dequantized_once() -> None:
    """Where an integer step makes the codes, float steps read what they stand for."""

    def function(module: Any, x: Tensor) -> Any:
        y = module.a(x)
        return module.b(y), y.exp(), y.sin()

    program = convert(quantized(Function(function), torch.randn(4, 8)), ALL)
    assert len(steps(program, "int.dequantize")) == 1


def test_padding_is_the_code_of_zero() -> None:
    """Also at a zero point that is not 0."""
    model = Function(lambda m, x: m.b(F.pad(m.a(x), (1, 0))[:, :8]))
    part = quantized(model, torch.randn(64, 8))
    (pad,) = steps(convert(part, ALL), "aten.constant_pad_nd.default")
    assert pad.args[2] == part.edges["linear"].zero_point != 0


def test_an_activation_becomes_a_table_that_is_kept_once() -> None:
    """The table is a constant of the program."""
    model = Function(lambda m, x: m.b(F.gelu(m.a(x))))
    program = convert(quantized(model, torch.randn(64, 8)), ALL)
    (step,) = steps(program, "int.table")
    assert program.constants[step.args[1].name].shape == (256,)


def test_what_an_engine_lacks_stays_float() -> None:
    """Steps of other kinds read and return floats, and the model is the same."""
    part = quantized(Function(lambda m, x: m.b(F.gelu(m.a(x)))), torch.randn(64, 8))
    linear = Capabilities(engine="some", integer_ops=frozenset(["linear"]), dtypes=(hs.uint8,))
    ops = [step.op for step in convert(part, linear).steps]
    assert ops == [
        *("int.quantize", "int.linear", "aten.gelu.default", "int.quantize", "int.linear")
    ]
    none = dataclasses.replace(linear, dtypes=())
    assert not any(s.op.startswith("int.linear") for s in convert(part, none).steps)


@pytest.mark.parametrize("function", [F.relu, F.relu6, F.hardtanh, lambda x: x.clamp(-0.5, 0.25)])
def test_a_clamp_is_part_of_the_layer_before_it(function: Any) -> None:
    """Whatever its bounds, and whether it is a module or a function."""
    part = quantized(Function(lambda m, x: m.b(function(m.a(x)))), torch.randn(64, 8))
    assert [step.op for step in convert(part, ALL).steps] == [
        *("int.quantize", "int.linear", "int.linear")
    ]


def test_a_clamp_after_a_move_is_a_table() -> None:
    """Its result has a range of its own, and so a scale."""
    model = Function(lambda m, x: m.b(F.relu(m.a(x).flip(0))))
    assert len(steps(convert(quantized(model, torch.randn(64, 8)), ALL), "int.table")) == 1


def test_a_cut_weight_is_cut_as_integers() -> None:
    """The whole is stored once; its parts are views of it."""

    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(16, 8))

        def forward(self, x: Tensor) -> Tensor:
            one, other = self.w.chunk(2)
            return F.linear(x, one) + F.linear(x, other)

    part = quantized(Cut(), torch.randn(4, 8))
    assert list(part.weights) == ["w"]
    program = convert(part, ALL)
    assert not steps(program, "int.quantize_weight")
    assert not steps(program, "int.dequantize_weight")


def test_a_computed_weight_is_quantized_once() -> None:
    """A weight that is made of parameters becomes integers when it has been made."""
    model = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    program = convert(quantized(model, torch.randn(4, 8)), ALL)
    assert len(steps(program, "int.quantize_weight")) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_keeps_its_float_dtype(dtype: torch.dtype) -> None:
    """What integer steps return as floats has the dtype that the model had there."""
    model = Function(lambda m, x: m.b(torch.softmax(m.a(x), -1))).to(dtype)
    x = torch.randn(64, 8, dtype=dtype)
    result = ptq.quantize(model, x, engine="reference")
    assert result.model(x).dtype == dtype


def test_a_recurrent_layer_keeps_its_weights_as_integers_alone() -> None:
    """Weight-only: the layer computes in float, with weights that are expanded once."""
    model, x = nn.LSTM(8, 4, batch_first=True), torch.randn(2, 5, 8)
    part = quantized(model, x, recipes.weight_only())
    program = convert(part, ALL)
    assert set(part.weights) == {"weight_ih_l0", "weight_hh_l0"}
    assert len(steps(program, "int.dequantize_weight")) == 2
    assert len(steps(program, "halfstep.lstm.default")) == 1
