"""What depends on parameters alone is computed once, and again when a parameter changes."""

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs
from halfstep.graph.export import arguments, export
from halfstep.graph.frozen import Bound, Frozen
from halfstep.graph.product import put
from halfstep.graph.program import Step
from halfstep.graph.trees import Value


class Scaled(nn.Module):
    """A linear layer whose weight is computed from two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        """X times the computed weight."""
        return F.linear(x, self.inner.weight * self.factor, self.inner.bias)


def frozen(module: nn.Module, x: Tensor, **options: Any) -> tuple[Frozen, Any]:
    """The module's program, frozen, and x as its arguments."""
    given = arguments(inspect.signature(module.forward), (x,), {})
    return Frozen(export(module, (x,)), **options), given


def steps_of(run: Frozen, module: nn.Module, given: Any) -> list[str]:
    """The names of the steps that a run still has."""
    seen: list[str] = []

    def note(step: Step, value: Any) -> Any:
        seen.append(step.op)
        return value

    run.run(module, given, note)
    return seen


def test_a_computed_weight_is_computed_once() -> None:
    """Only the step that reads the input is left for each run, and the result is the model's."""
    module, x = Scaled(), torch.randn(5, 4)
    run, given = frozen(module, x)
    assert torch.equal(run.run(module, given), module(x))
    assert steps_of(run, module, given) == ["aten.linear.default"]


@pytest.mark.parametrize("change", ["in place", "replaced", "module", "another model"])
def test_a_changed_parameter_is_noticed(change: str) -> None:
    """A run uses the parameters as they are, in whichever way they became so."""
    module, x = Scaled(), torch.randn(5, 4)
    run, given = frozen(module, x)
    before = run.run(module, given)
    if change == "in place":
        with torch.no_grad():
            module.factor.mul_(3)
    elif change == "replaced":
        module.factor = nn.Parameter(torch.tensor(5.0))
    elif change == "module":
        module.inner = nn.Linear(4, 3)
    else:
        module = Scaled()
    after = run.run(module, given)
    assert torch.equal(after, module(x))
    assert not torch.equal(after, before)


def test_integers_written_over_are_noticed() -> None:
    """Loading the state of another quantized model takes effect."""
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    run, given = frozen(module, x)
    put(module, "weight", hs.quantize(module.weight.detach(), hs.int8))
    first = run.run(module, given)
    other = {"weight": hs.quantize(torch.randn(3, 4), hs.int8), "bias": torch.zeros(3)}
    module.load_state_dict(other)
    assert not torch.equal(run.run(module, given), first)
    torch.testing.assert_close(run.run(module, given), x @ other["weight"].dequantize().T)


def test_a_bound_kernel_runs_in_place_of_the_operator() -> None:
    """What ``bind`` returns is called with the values that it names, and is asked for once."""
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    asked: list[str] = []

    def bind(step: Step, lookup: Any) -> Bound | None:
        asked.append(step.op)
        weight, bias = lookup(step.args[1]), lookup(step.args[2])
        assert lookup(step.args[0]) is None
        return Bound(lambda x: x @ weight.T + bias + 1, (step.args[0],))

    run, given = frozen(module, x, bind=bind)
    for _ in range(3):
        torch.testing.assert_close(run.run(module, given), module(x) + 1)
    assert asked == ["aten.linear.default"]


def test_results_carry_no_gradient() -> None:
    """Frozen programs are for inference: their results do not require gradients."""
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    run, given = frozen(module, x)
    assert not run.run(module, given).requires_grad


def test_a_value_is_named_in_the_program() -> None:
    """The program is the one that was given."""
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    run, given = frozen(module, x)
    assert run.program.outputs == Value("linear")
    assert run.takes(given)
