"""What observers are made with: every wrong value is refused with Halfstep's own error."""

from typing import Any

import numpy as np
import pytest
import torch

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.observe import (
    FakeQuantize,
    FixedObserver,
    MinMaxObserver,
    MovingAverageObserver,
    PercentileObserver,
)
from halfstep.spec import int8, uint8
from tests.observe.kinds import KINDS

NOT_NUMBERS = ("a", None, [1.0], 1j, True, torch.ones(1))


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_share_is_a_number(value: Any) -> None:
    """A percentile or momentum that is no number names itself and what is allowed."""
    with pytest.raises(ArgumentTypeError, match=r"percentile=.* is not a number: give .* to 100"):
        PercentileObserver(uint8, percentile=value)
    with pytest.raises(ArgumentTypeError, match=r"momentum=.* is not a number: give .* to 1"):
        MovingAverageObserver(uint8, momentum=value)


@pytest.mark.parametrize("value", [0, -0.5, 1.5, float("nan"), float("inf")])
def test_momentum_is_a_weight(value: float) -> None:
    """A momentum outside (0, 1] is refused."""
    with pytest.raises(ArgumentError, match=f"momentum={float(value)} is not the weight of a bat"):
        MovingAverageObserver(uint8, momentum=value)


def test_numbers_of_numpy_are_numbers() -> None:
    """A float32 scalar of numpy is kept as a float."""
    observer = PercentileObserver(uint8, percentile=np.float32(99.5))  # type: ignore[arg-type]  # not a float, but a number
    assert type(observer.percentile) is float
    assert MovingAverageObserver(uint8, momentum=1).momentum == 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["drop", None, ["raise"], np.array(["raise", "ignore"])])
def test_policy_is_one_of_two(kind: str, policy: Any) -> None:
    """Anything but "raise" and "ignore" is refused, an array of both included."""
    with pytest.raises(ArgumentError, match=r"nonfinite=.* is not a policy: use one of"):
        KINDS[kind](int8, nonfinite=policy)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["int8", None, 3, torch.float32, torch.ones(2)], ids=repr)
def test_spec_is_a_format(kind: str, spec: Any) -> None:
    """A spec that is none is refused."""
    with pytest.raises(ArgumentTypeError, match="is not an integer format"):
        KINDS[kind](spec)


@pytest.mark.parametrize("value", ["a", None, 1j, torch.tensor([1j]), {}, [1.0, "b"]], ids=repr)
def test_end_of_a_range_is_a_real_number(value: Any) -> None:
    """lo and hi that are no real numbers are refused, wherever they are given."""
    makes = (
        lambda: FixedObserver(uint8, value, 1.0),
        lambda: FixedObserver(uint8, 0.0, value),
        lambda: MinMaxObserver(uint8).set_range(0.0, value),
    )
    for make in makes:
        with pytest.raises(ArgumentTypeError, match="is not a real number, a list of them or a"):
            make()


@pytest.mark.parametrize("value", ["no", None, 1], ids=repr)
def test_learnable_is_a_bool(value: Any) -> None:
    """A word is not taken for True."""
    with pytest.raises(ArgumentTypeError, match=r"learnable=.* is not a bool"):
        FakeQuantize(MinMaxObserver(int8), learnable=value)


@pytest.mark.parametrize("switch", ["observing", "quantizing"])
@pytest.mark.parametrize("value", ["a", None, torch.arange(3)], ids=repr)
def test_input_is_a_float_tensor(switch: str, value: Any) -> None:
    """FakeQuantize refuses what is no float tensor, whichever switch is on."""
    module = FakeQuantize(MinMaxObserver(int8))
    module(torch.ones(3))
    module.observing, module.quantizing = switch == "observing", switch == "quantizing"
    with pytest.raises(ArgumentTypeError, match="FakeQuantize takes"):
        module(value)
