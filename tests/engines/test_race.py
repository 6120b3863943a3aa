"""Functions that return the same: the fastest one runs."""

import time

import torch
from torch import Tensor

from halfstep.engines.race import Race


def test_the_slow_one_is_left_behind() -> None:
    """After the first call with a shape only the fastest function is called."""
    calls = []

    def slow(x: Tensor) -> Tensor:
        calls.append(x)
        time.sleep(0.01)
        return x + 1

    race = Race(slow, lambda x: x + 1)
    x = torch.zeros(3)
    assert torch.equal(race(x), x + 1)
    asked = len(calls)
    assert torch.equal(race(x), x + 1)
    assert len(calls) == asked
    race(torch.zeros(4))
    assert len(calls) > asked
