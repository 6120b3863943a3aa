"""Every step written in one way, and the same bits."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.normalize import normalized
from halfstep.graph.operators import resolve
from halfstep.graph.program import Program, Step
from tests.graph.passes import CASES, captured, changed, pairs, prepared, runner, same
from tests.graph.zoo import Formula, rand

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


class Function(nn.Module):
    """A function of a tensor and a weight."""

    def __init__(self, function: Any, *sizes: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(rand(*sizes))

    def forward(self, x: Tensor) -> Any:
        """Apply the function."""
        return self.function(x, self.weight)


def after(model: nn.Module, *args: Tensor) -> Program:
    """The program of a model, normalized, which gives the model's bits."""
    program = normalized(export(model.eval(), args), model)
    check(program, model)
    assert torch.equal(runner(model, program)(*args), model(*args))
    return program


def assert_complete(step: Step) -> None:
    """All arguments of the schema are there, each where the schema wants it."""
    function: Any = resolve(step.op)
    if isinstance(function, torch._ops.OpOverload):
        schema = function._schema.arguments
        assert len(step.args) == sum(not argument.kwarg_only for argument in schema)
        by_name = [argument.name for argument in schema if argument.kwarg_only]
        assert [name for name, _ in step.kwargs] == by_name


@pytest.mark.parametrize("name", CASES)
def test_the_zoo_keeps_its_bits(name: str) -> None:
    """Functional and normalized programs compute what the model computes, element for element."""
    model, found = captured(name)
    twin = changed(model, found, prepared)
    assert all(same(one, other) for one, other in pairs(model, twin, name))
    for path, programs in found.programs.items():
        for program in programs:
            for step in prepared(program, model.get_submodule(path)).steps:
                assert_complete(step)


def test_it_is_done_once() -> None:
    """A normalized program stays as it is."""
    model = nn.Sequential(nn.Conv2d(3, 4, (2, 3), padding="same"), nn.MaxPool2d(2), nn.ReLU())
    program = after(model, rand(2, 3, 8, 8))
    assert normalized(program, model).steps == program.steps


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_padding_by_name(kernel: int, dilation: int, dimensions: int) -> None:
    """A padding of "same" and "valid" is numbers, of unequal sides by a step of its own."""
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    x = rand(2, 2, *range(8, 8 + dimensions))
    for word in ("same", "valid"):
        sizes: Any = (kernel, *range(2, dimensions + 1))
        model = layer(2, 4, sizes, padding=word, dilation=dilation, groups=2)
        program = after(model, x)
        assert program.steps[-1].op == f"aten.conv{dimensions}d.default"
        assert all(isinstance(size, int) for size in program.steps[-1].args[4])


def test_without_a_module_same_stays() -> None:
    """The size of a weight is not guessed."""
    model = nn.Conv2d(2, 2, 2, padding="same")
    program = export(model, (rand(2, 2, 5, 5),))
    assert normalized(program).steps[0].op == "aten.conv2d.padding"


def test_lists_have_full_length() -> None:
    """One number for all dimensions becomes one for each; a pool's stride is its kernel."""
    model = Function(lambda x, w: F.avg_pool2d(F.max_pool2d(F.conv2d(x, w), 2), (2,)), 3, 2, 3, 3)
    program = after(model, rand(2, 2, 12, 12))
    conv, top, mean = program.steps
    assert conv.args[2:] == (None, (1, 1), (0, 0), (1, 1), 1)
    assert top.args[1:] == ((2, 2), (2, 2), (0, 0), (1, 1), False)
    assert mean.args[1:4] == ((2, 2), (2, 2), (0, 0))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_operator_behind_convolutions(dimensions: int, *, transposed: bool) -> None:
    """It becomes the convolution of its dimensions and direction."""
    ones = [1] * dimensions

    def function(x: Tensor, w: Tensor) -> Tensor:
        zeros = [0] * dimensions
        options = (transposed, ones if transposed else zeros, 2)
        return torch.ops.aten.convolution.default(
            x, w, None, [2] * dimensions, ones, ones, *options
        )

    model = Function(function, 4, 2, *[3] * dimensions)
    x = rand(2, 4, *range(5, 5 + dimensions))
    (step,) = after(model, x).steps
    assert step.op.startswith(f"aten.conv{'_transpose' if transposed else ''}{dimensions}d.")


def test_a_list_of_one_number_for_a_convolution_of_two_dimensions() -> None:
    """The weight says how many dimensions there are."""
    convolution = torch.ops.aten.convolution.default
    model = Function(lambda x, w: convolution(x, w, None, [1], [1], [1], False, [0], 1), 3, 2, 3, 3)
    (step,) = after(model, rand(2, 2, 5, 5)).steps
    assert step.op == "aten.conv2d.default"
    assert step.args[3:] == ((1, 1), (1, 1), (1, 1), 1)


@pytest.mark.parametrize("value", [None, 0.0, -1.5])
def test_padding_with_a_constant(value: float | None) -> None:
    """It is written as constant_pad_nd; other modes stay."""
    model = Formula(lambda x: F.pad(x, (1, 2), value=value))
    assert after(model, rand(3, 6)).steps[-1].op == "aten.constant_pad_nd.default"
    model = Formula(lambda x: F.pad(x[None], (1, 2), mode="reflect"))
    assert after(model, rand(3, 6)).steps[-1].op == "aten.pad.default"


def test_detach_goes_where_nothing_is_trained() -> None:
    """And stays where gradients stop at it."""
    model = Formula(lambda x: x.detach() * 2)
    program = after(model, rand(3, 6))
    assert [step.op for step in program.steps] == ["aten.linear.default", "aten.mul.Tensor"]
    trained = normalized(export(model.train(), (rand(3, 6),)), model)
    assert "aten.detach.default" in [step.op for step in trained.steps]


def test_constants_are_read_without_a_copy() -> None:
    """Unless the copy is what the model returns."""
    model = Formula(lambda x: x + torch.tensor([1.0, 2, 3, 4, 5, 6]))
    ops = [step.op for step in prepared(export(model, (rand(3, 6),)), model).steps]
    assert ops == ["aten.linear.default", "aten.add.Tensor"]
    (step,) = [s for s in prepared(export(model, (rand(3, 6),)), model).steps if "add" in s.op]
    assert step.kwargs == (("alpha", 1),)


def test_unknown_operators_stay() -> None:
    """Recurrent layers and arithmetic on sizes are as they were."""
    model = nn.LSTM(4, 6)
    program = normalized(export(model, (rand(5, 2, 4),)), model)
    assert "halfstep.lstm.default" in [step.op for step in program.steps]
