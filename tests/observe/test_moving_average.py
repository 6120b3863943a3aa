"""Moving averages near the end of float32, where a difference of two numbers overflows."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.observe import FakeQuantize, MovingAverageObserver
from halfstep.observe.batch import moving_average
from halfstep.spec import PerChannel, QSpec, int8
from tests.observe.kinds import same_state
from tests.strategies import QUICK

NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@QUICK
@given(NUMBERS, NUMBERS, st.floats(0.001, 1.0))
def test_average_lies_between(a: float, b: float, momentum: float) -> None:
    """The average of finite numbers is finite, between both, and right to float32's rounding."""
    old, new = torch.tensor([a]), torch.tensor([b])
    average = moving_average(old, new, momentum).item()
    slack = 1e-6 * max(abs(a), abs(b)) + 1e-44
    assert min(a, b) - slack <= average <= max(a, b) + slack
    assert average == pytest.approx(a + momentum * (b - a), rel=1e-6, abs=slack)


def test_far_batches_are_no_missing_batches() -> None:
    """Finite ends that overflow when they are subtracted give the range they should."""
    observer = MovingAverageObserver(int8, momentum=0.5)
    observer(torch.tensor([-1e38, 1e38])), observer(torch.tensor([-3e38, -2.9e38]))
    assert observer.max_val.item() == pytest.approx(-0.95e38)
    assert observer.qparams()[0].item() == pytest.approx(2e38 / 255)
    module = FakeQuantize(MovingAverageObserver(int8, momentum=0.25))
    module(torch.tensor([-3e38])), module(torch.tensor([3e38]))
    assert module.observer.min_val.item() == pytest.approx(-1.5e38)


def test_each_channel_alone() -> None:
    """A channel that overflows changes no bit of another, nor one that has not been seen."""
    spec = QSpec(int8, PerChannel(0))
    batches = [
        torch.tensor([[0.1], [3e38], [math.inf]]),
        torch.tensor([[0.7], [-3e38], [2.0]]),
    ]
    together = MovingAverageObserver(spec, momentum=0.3, nonfinite="ignore")
    alone = [MovingAverageObserver(spec, momentum=0.3, nonfinite="ignore") for _ in range(3)]
    for batch in batches:
        together(batch)
        for observer, row in zip(alone, batch.split(1), strict=True):
            observer(row)
    assert torch.equal(together.max_val, torch.cat([observer.max_val for observer in alone]))
    assert together.max_val.flatten().tolist()[2] == 2.0


def test_compiled_average_has_the_same_bits() -> None:
    """A graph computes both forms, and takes the same one."""
    torch._dynamo.reset()
    spec = QSpec(int8, PerChannel(0))
    compiled, eager = (MovingAverageObserver(spec, momentum=0.3) for _ in range(2))
    run = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    for batch in (torch.tensor([[0.1], [3e38]]), torch.tensor([[0.7], [-3e38]])):
        run(batch), eager(batch)
    assert same_state(compiled, eager)
