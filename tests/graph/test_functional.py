"""Changes in place become new values; what aliases of a changed value see stays right."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.graph.export import export
from halfstep.graph.functional import functional
from halfstep.graph.in_place import is_functional
from tests.graph.passes import CASES, captured, changed, pairs, runner, same
from tests.graph.rewriting import Model, X, assert_refused, assert_rewritten

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@pytest.mark.parametrize("name", CASES)
def test_the_zoo_keeps_its_bits(name: str) -> None:
    """No program of the zoo needs a reason, and each computes the model's bits."""
    model, found = captured(name)
    twin = changed(model, found, lambda program, module: functional(program, module).program)
    assert all(same(one, other) for one, other in pairs(model, twin, name))
    for programs in found.programs.values():
        assert all(is_functional(functional(program).program) for program in programs)


def test_a_program_without_changes_is_itself() -> None:
    """Nothing is copied."""
    program = export(nn.Linear(6, 2), (X,))
    assert functional(program).program is program


@pytest.mark.parametrize(
    "change",
    [
        lambda y: F.relu(y, inplace=True),
        lambda y: F.hardtanh(y, inplace=True),
        lambda y: F.leaky_relu(y, 0.1, inplace=True),
        lambda y: F.hardswish(y, inplace=True),
        lambda y: F.silu(y, inplace=True),
        lambda y: F.elu(y, inplace=True),
        lambda y: y.sigmoid_(),
        lambda y: y.clamp_(-1, 1),
        lambda y: y.clamp_(min=0),
        lambda y: y.add_(y, alpha=2),
        lambda y: y.mul_(0.5),
        lambda y: y.sub_(1),
        lambda y: y.div_(y + 3),
        lambda y: y.pow_(2),
        lambda y: y.neg_(),
        lambda y: y.copy_(y[0] * 2),
        lambda y: y.fill_(2),
        lambda y: y.zero_(),
        lambda y: y.masked_fill_(y > 0, 3.0),
        lambda y: y.index_put_((torch.tensor([0, 1]),), torch.tensor(2.0)),
        lambda y: y.lerp_(y * 2, 0.3),
        lambda y: y.addcmul_(y, y, value=0.5),
        lambda y: y.gt_(0),
        lambda y: y.logical_not_(),
        lambda y: y.clamp_max_(0.1).exp_(),
    ],
)
def test_every_family(change: Callable[[Tensor], Any]) -> None:
    """The value, an alias of it, a view taken before and one taken after see the change."""

    def function(model: Model, x: Tensor) -> Any:
        y = x * 2
        before, column, turned = y, y[:, 1], y.t()
        z = change(y)
        return z, y, before + 1, column * 2, turned, y[0] + 1

    ops = assert_rewritten(function, X)
    assert not any(op.split(".")[1].endswith("_") for op in ops)


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y[:, 0],
        lambda y: y[1:3],
        lambda y: y[:, ::2],
        lambda y: y[-1],
        lambda y: y.t(),
        lambda y: y.t()[2],
        lambda y: y.view(2, 12),
        lambda y: y.view(-1)[3:9],
        lambda y: y.unsqueeze(1)[:, :, 2],
        lambda y: y.unflatten(1, (2, 3)).permute(1, 0, 2)[1],
        lambda y: y.unflatten(1, (2, 3)).permute(-1, 0, 1),
        lambda y: y.transpose(0, 1).squeeze(),
        lambda y: y.diagonal(),
        lambda y: y.unbind(1)[2],
        lambda y: y.split(4, 1)[1],
        lambda y: y.split([1, 5], 1)[1],
        lambda y: y.split(3)[1],
        lambda y: y[2][1:4][::2],
    ],
)
def test_changes_through_views(view: Callable[[Tensor], Tensor]) -> None:
    """They are written into the value, and the views of it overlapping this one see them."""

    def function(model: Model, x: Tensor) -> Any:
        y = x * 2
        rows, first = y[:3], y[0]
        view(y).mul_(3)
        again = view(y)
        again.add_(1)
        return y, rows + 1, first, view(y), again

    assert_rewritten(function, X)


def test_assignments() -> None:
    """What is written with brackets, on the left."""

    def function(model: Model, x: Tensor) -> Any:
        y = x * 2
        y[:, 0] = 1
        y[:, 1:3] += x[:, 1:3]
        y[x > 0] = 0
        y[0, 1] = x[1, 1]
        y[..., -1] = x[..., 0]
        return y

    assert_rewritten(function, X)


def test_what_the_caller_owns_is_changed_at_the_end() -> None:
    """An input and a buffer hold what the model leaves in them; other calls see it."""

    def function(model: Model, x: Tensor) -> Tensor:
        model.state.add_(x[:, 0])
        x.relu_()
        model.state.mul_(2)
        return x + model.state[:, None]

    ops = assert_rewritten(function, X)
    assert ops[-2:] == ["aten.copy_.default"] * 2


def test_a_view_of_an_input_is_changed() -> None:
    """Also through a slice of it."""

    def function(model: Model, x: Tensor) -> Tensor:
        x[1:].relu_()
        return x * 2

    assert_rewritten(function, X)


@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float16, torch.float32),
        (torch.float32, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.int32, torch.int64),
        (torch.int64, torch.int32),
        (torch.float64, torch.float32),
    ],
)
def test_the_type_stays(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """A sum in place has the type of what it changes, not the wider one."""
    one, other = ((X * 8).to(dtype) for dtype in dtypes)
    ops = assert_rewritten(lambda _, x, y: (x * 2).add_(y).sub_(y[0]), one, other)
    assert "aten.type_as.default" in ops


def test_the_type_of_a_parameter_is_looked_up() -> None:
    """A buffer of float64 does not widen a float32 value."""
    model = Model(lambda self, x: (x * 2).add_(self.state[:, None]))
    model.state = model.state.double() + 0.1
    result = functional(export(model, (X,)), model)
    assert torch.equal(runner(model, result.program)(X), model(X))


def test_one_float_type_needs_no_casts() -> None:
    """A residual sum in place is a plain sum."""
    assert assert_rewritten(lambda _, x: (x * 2).add_(x), X) == [
        "aten.mul.Tensor",
        "aten.add.Tensor",
    ]


def test_memory_that_may_be_shared() -> None:
    """A reshape may be a view or a copy: whoever reads it after a change gets no program."""

    def read_after(model: Model, x: Tensor) -> Any:
        y = x * 2
        flat = y.t().reshape(-1)
        y.relu_()
        return flat

    def changed_below(model: Model, x: Tensor) -> Any:
        y = x * 2
        y.t().contiguous().relu_()
        return y

    for function in (read_after, changed_below):
        assert "may or may not share memory" in assert_refused(function, X)
    assert_rewritten(lambda _, x: (x * 2).reshape(-1).relu_(), X)


def test_an_input_that_may_be_shared() -> None:
    """The caller would see the change of its input, or would not."""
    why = assert_refused(lambda _, x: x.t().flatten().relu_(), X)
    assert why == "inputs_0 may or may not share memory with what it changes in place"


def test_views_without_an_inverse() -> None:
    """Only the changed view itself may be read afterwards."""

    def other_read(model: Model, x: Tensor) -> Any:
        y = x * 2
        y.chunk(2)[0].relu_()
        return y

    def itself_read(model: Model, x: Tensor) -> Any:
        y = x * 2
        return y.chunk(2)[0].relu_()[0]

    assert "operator.getitem" in assert_refused(other_read, X)
    assert_rewritten(itself_read, X)


def test_sizes_are_read_after_any_change() -> None:
    """A shape does not depend on what was changed."""

    def function(model: Model, x: Tensor) -> Any:
        y = x * 2
        flat = y.t().reshape(-1)
        z = y.relu_()
        return z.view(flat.shape[0])

    assert_rewritten(function, X)


def test_operators_without_a_twin() -> None:
    """Out arguments and changes of the shape in place stay, with a reason."""

    def out(model: Model, x: Tensor) -> Any:
        y = x * 2
        torch.add(x, x, out=y)
        return y

    assert "no form" in assert_refused(out, X)
    assert "no form" in assert_refused(lambda _, x: (x * 2).t_(), X)


def test_items_of_an_operator_are_values_of_their_own() -> None:
    """Of two outputs, a change of one is no change of the other."""

    def function(model: Model, x: Tensor) -> Any:
        top, places = x.sort()
        top.relu_()
        return top, places, top[0]

    assert_rewritten(function, X)


def test_training_beside_no_grad() -> None:
    """Where gradients depend on where a change happens, it stays."""

    def function(model: Model, x: Tensor) -> Tensor:
        y = x * 2
        with torch.no_grad():
            y.mul_(3)
        return y

    model = Model(function).train()
    result = functional(export(model, (X,)), model)
    assert "gradients" in next(iter(result.reasons.values()))


def test_training_with_dropout_in_place() -> None:
    """The same random numbers, and the same gradients."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5, inplace=True))
    result = functional(export(model.train(), (X,)), model)
    assert not result.reasons
    twin = runner(model, result.program).train()
    for each in (model, twin):
        torch.manual_seed(3)
        each(X).square().sum().backward()
    grads = [[p.grad for p in each.parameters()] for each in (model, twin)]
    assert all(map(same, *grads))
