"""The loop: values are freed, steps can be watched and replaced."""

import inspect
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from halfstep.graph.export import arguments, export
from halfstep.graph.program import Step
from halfstep.graph.run import Plan
from tests.graph.zoo import Quiet, rand


def given(model: nn.Module, *args: Any) -> Any:
    """Arguments as a plan takes them."""
    return arguments(inspect.signature(model.forward), args, {})


def test_values_are_freed_after_their_last_use() -> None:
    """At no time are more than two values of a chain alive."""
    model = nn.Sequential(*[nn.ReLU() for _ in range(6)])
    plan, alive = Plan(export(model, (rand(3, 4),))), []

    def watch(step: Step, value: Any) -> Any:
        alive.append(weakref.ref(value))
        assert sum(ref() is not None for ref in alive) <= 2
        return value

    plan.run(model, given(model, rand(3, 4)), watch)
    assert len(alive) == 6


def test_a_hook_replaces_what_a_step_brings() -> None:
    """What it returns goes on."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    plan = Plan(export(model, (rand(3, 4),)))
    seen: list[str] = []

    def ones(step: Step, value: Any) -> Any:
        seen.append(step.source)
        return torch.full_like(value, -1) if step.source == "0" else value

    assert not plan.run(model, given(model, rand(3, 4)), ones).any()
    assert seen == ["0", "1"]


def test_the_gradient_mode_is_restored() -> None:
    """After a region without gradients, also when a step in it fails."""
    model = Quiet()
    plan = Plan(export(model, (rand(3, 6),)))
    assert plan.run(model, given(model, rand(3, 6))).requires_grad

    def fail(step: Step, value: Any) -> Any:
        if not torch.is_grad_enabled():
            raise KeyboardInterrupt
        return value

    with pytest.raises(KeyboardInterrupt):
        plan.run(model, given(model, rand(3, 6)), fail)
    assert torch.is_grad_enabled()
    with torch.no_grad():
        plan.run(model, given(model, rand(3, 6)))
        assert not torch.is_grad_enabled()
