"""Programs are plain data: printed, pickled, measured for liveness, checked."""

import dataclasses
import pickle

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.operators import name_of, resolve, torch_value
from halfstep.graph.program import Input, Program, Step, TorchName
from halfstep.graph.trees import Value, split
from tests.graph import zoo

X, Y = Value("x"), Value("y")


def program(*steps: Step, outputs: object = Y) -> Program:
    """A program of one input x."""
    arguments = split({"x": X})
    return Program((Input(X, "float32", 1),), arguments, outputs, steps)


def test_a_value_dies_after_its_last_use() -> None:
    """Inputs and unread values die too; outputs never."""
    made = program(
        Step("a", "aten.relu.default", (X,)),
        Step("b", "aten.neg.default", (Value("a"),)),
        Step("y", "aten.add.Tensor", (Value("a"), X)),
    )
    assert made.last_use == ((), ("b",), ("a", "x"))


def test_steps_are_hashable_and_print() -> None:
    """A step is a line of Python, its keyword arguments and its module included."""
    step = Step("y", "aten.to.dtype", (X, (1, X)), (("dtype", TorchName("dtype", "half")),), "a.b")
    assert hash(step) == hash(dataclasses.replace(step))
    assert str(step) == "y = aten.to.dtype(x, (1, x), dtype=torch.half)  # a.b"


def test_a_pickled_program_is_the_same_text() -> None:
    """Operators, dtypes and devices are pickled as names."""
    made = export(zoo.Block().eval(), (zoo.rand(2, 3, 8, 8),))
    stored = pickle.dumps(made)
    assert b"OpOverload" not in stored
    assert str(pickle.loads(stored)) == str(made)


def test_names_and_modules_of_the_model_are_kept() -> None:
    """High-level operators, parameters by their path, the module that each step stems from."""
    made = export(zoo.Block().eval(), (zoo.rand(2, 3, 8, 8),))
    first = made.steps[0]
    assert (first.op, first.source) == ("aten.conv2d.default", "conv1")
    assert made.parameters["bn1.running_mean"] == "bn1.running_mean"
    ops = [step.op for step in made.steps]
    assert ops.count("aten.batch_norm.default") == 2
    assert not any("dropout" in op or "assert" in op for op in ops)


def test_tied_parameters_have_one_name() -> None:
    """The first path of a shared weight stands for all."""
    made = export(zoo.Tied(), (zoo.tokens(2, 5),))
    assert made.parameters == {"embedding.weight": "embedding.weight"}


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (program(Step("y", "aten.relu.default", (Value("z"),))), "step y reads z, which nothing"),
        (program(Step("x", "aten.relu.default", (X,))), "step x defines x a second time"),
        (program(outputs=Y), "output y is not defined"),
        (program(Step("y", "aten.nothing.default", (X,))), "no operator aten.nothing.default"),
        (program(Step("y", "os.system.default", (X,))), "no operator os.system.default"),
        (program(Step("y", "aten.relu.default", (torch.relu,))), "step y takes a builtin"),
        (program(Step("y", "aten.to.dtype", (X, TorchName("dtype", "nn")))), "has no dtype nn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_check_names_the_step(broken: Program, error: str) -> None:
    """A program that cannot run is refused before it runs."""
    with pytest.raises(hs.ArgumentError, match=error):
        check(broken)


def test_check_looks_for_parameters_in_the_model() -> None:
    """A program of another model is refused."""
    made = export(nn.Linear(2, 2), (torch.ones(3, 2),))
    check(made, nn.Linear(2, 2))
    with pytest.raises(hs.ArgumentError, match="ReLU has no tensor weight"):
        check(made, nn.ReLU())


def test_inputs_are_the_arguments() -> None:
    """An argument without an input would stay empty."""
    made = dataclasses.replace(program(Step("y", "aten.relu.default", (X,))), inputs=())
    with pytest.raises(hs.ArgumentError, match=r"reads x|differ in \['x'\]"):
        check(made)


def test_only_arithmetic_and_operators_have_names() -> None:
    """A program cannot name any other function."""
    assert name_of(torch.ops.aten.relu.default) == "aten.relu.default"
    assert resolve(name_of(torch.sym_max)) is torch.sym_max
    with pytest.raises(hs.ArgumentError, match="system has no place"):
        name_of(__import__("os").system)
    assert torch_value(TorchName("device", "cpu")) == torch.device("cpu")
