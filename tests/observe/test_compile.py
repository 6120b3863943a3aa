"""Observers and FakeQuantize inside torch.compile, as one graph."""

import math

import pytest
import torch

from halfstep.errors import NonFiniteError
from halfstep.observe import FakeQuantize, MinMaxObserver
from halfstep.spec import PerChannel, QSpec, int8, uint8
from tests.assertions import assert_same_bits
from tests.observe.kinds import KINDS, make, same_state


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    """Each test compiles from nothing."""
    torch._dynamo.reset()


@pytest.mark.parametrize("policy", ["raise", "ignore"])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_observer_knows_the_same(kind: str, policy: str) -> None:
    """One full graph, first batch included, leaves the state of eager mode."""
    spec = QSpec(int8, PerChannel(1))
    compiled, eager = make(kind, spec, nonfinite=policy), make(kind, spec, nonfinite=policy)
    run = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    for batch in (torch.randn(3, 4, 5), 9 * torch.randn(6, 4, 5)):
        if policy == "ignore":
            batch[0, 0, 0] = math.nan
        run(batch), eager(batch)
    assert same_state(compiled, eager)


def test_not_a_number_is_found_at_the_end() -> None:
    """A graph cannot raise, so NaN stays in the state and qparams raises."""
    observer = MinMaxObserver(uint8)
    run = torch.compile(observer, fullgraph=True, backend="aot_eager")
    run(torch.tensor([1.0, math.nan])), run(torch.tensor([1.0, 2.0]))
    with pytest.raises(NonFiniteError, match="MinMaxObserver was given"):
        observer.qparams()


@pytest.mark.parametrize("form", ["plain", "learnable"])
def test_compiled_fake_quantize_trains(form: str) -> None:
    """Forward and backward of a compiled FakeQuantize equal eager mode."""
    spec = QSpec(int8, PerChannel(1))
    modules = [FakeQuantize(MinMaxObserver(spec), learnable=form == "learnable") for _ in range(2)]
    x = torch.randn(3, 4, 5)
    for module in modules:
        module(x)
    compiled = torch.compile(modules[0], fullgraph=True, backend="aot_eager")
    leaf, twin = ((2 * x).requires_grad_() for _ in range(2))
    y, expected = compiled(leaf), modules[1](twin)
    y.square().sum().backward()
    expected.square().sum().backward()
    assert leaf.grad is not None
    assert twin.grad is not None
    assert_same_bits(y, expected)
    assert_same_bits(leaf.grad, twin.grad)
