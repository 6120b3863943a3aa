"""Convolutions that may write over their residual, and those that may not."""

import copy

import torch
from torch import nn

import halfstep as hs
from halfstep.graph.export import arguments
from halfstep.graph.frozen import Frozen
from halfstep.graph.liveness import owning
from halfstep.graph.product import Forward


class Residual(nn.Module):
    """Sums whose second operand nobody reads afterwards, is read by the sum itself, or returned."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b, self.c = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The last sum, and the value before it, which is an output too."""
        x = torch.relu(self.stem(x))
        y = torch.relu(self.b(torch.relu(self.a(x))) + x)
        z = torch.relu(self.c(y) + y)
        return torch.relu(self.b(self.a(z)) + z), z


def quantized() -> tuple[hs.Result, torch.Tensor]:
    """The network in integers, and images."""
    torch.manual_seed(0)
    x = torch.randn(4, 16, 9, 9)
    return hs.ptq.quantize(Residual().eval(), x), x


def frozen(result: hs.Result) -> Frozen:
    """What runs the one program of a result."""
    forward = vars(result.model)["forward"]
    assert isinstance(forward, Forward)
    (plan,) = forward.plans[False]
    assert isinstance(plan, Frozen)
    return plan


def test_the_last_reader_owns_the_residual() -> None:
    """One of two sums in integers: the other reads its operand twice."""
    result, x = quantized()
    result.model(x)
    program = frozen(result).program
    (name,) = owning(program)
    residuals = [step.name for step in program.steps if step.op == "int.conv" and step.args[8]]
    assert len(residuals) == 2
    assert name == residuals[0]


def test_writing_over_a_residual_changes_no_result() -> None:
    """Run after run, and beside the formulas, and with every value looked at."""
    result, x = quantized()
    expected = hs.deploy(copy.deepcopy(result.model), engine="reference")(x)
    for _ in range(3):
        for one, other in zip(result.model(x), expected, strict=True):
            assert torch.equal(one, other)


def test_a_hook_sees_values_that_stay() -> None:
    """Who looks at values may keep them: nothing is written over then."""
    result, x = quantized()
    forward, plan = vars(result.model)["forward"], frozen(result)
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def hook(step: object, value: object) -> object:
        if isinstance(value, torch.Tensor):
            seen[getattr(step, "name", "")] = value, value.clone()
        return value

    plan.run(result.model, arguments(forward.__signature__, (x,), {}), hook)
    assert all(torch.equal(value, before) for value, before in seen.values())
    assert len(seen) > 4
