"""Ranges set by hand: checked, used at once, forgotten by reset."""

import math
from typing import Any

import pytest
import torch

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError
from halfstep.observe import FixedObserver, MinMaxObserver
from halfstep.spec import Granularity, PerChannel, PerGroup, PerTensor, QSpec, int8, uint8
from tests.observe.kinds import KINDS, make


@pytest.mark.parametrize("kind", KINDS)
def test_range_set_by_hand_wins(kind: str) -> None:
    """It holds before data and after, until reset; the data are still counted."""
    observer = make(kind)
    observer.set_range(0.0, 2.55)
    assert observer.qparams()[0].item() == pytest.approx(0.01)
    observer(torch.randn(4, 5) * 100)
    scale, _ = observer.qparams()
    assert scale.shape == (1, 1)
    assert scale.item() == pytest.approx(0.01)
    assert observer.count == 20
    observer.reset()
    assert not observer.has_range


@pytest.mark.parametrize(
    "lo",
    [
        [-1.0, -2.0, -3.0],
        torch.tensor([-1.0, -2.0, -3.0]),
        torch.tensor([[[-1.0]], [[-2.0]], [[-3]]]),
    ],
    ids=["list", "1-d", "full shape"],
)
def test_one_range_for_each_channel(lo: Any) -> None:
    """A list, a 1-d tensor and the full shape mean the same."""
    observer = MinMaxObserver(QSpec(int8, PerChannel(-3), symmetric=True))
    observer.set_range(lo, 0.0)
    observer(torch.randn(2, 3, 4, 4))
    scale, _ = observer.qparams()
    assert scale.shape == (1, 3, 1, 1)
    assert torch.equal(scale.flatten(), torch.tensor([1.0, 2.0, 3.0]) / 128)


def test_one_number_holds_for_all_channels() -> None:
    """A number is spread over the channels once they are known."""
    observer = MinMaxObserver(QSpec(uint8, PerChannel(1)))
    observer.set_range(-1, 1)
    observer(torch.randn(2, 3))
    assert observer.qparams()[0].shape == (1, 3)


def test_a_range_may_be_one_point() -> None:
    """lo == hi is a range: it is widened to hold 0, and [0, 0] is dead."""
    observer = MinMaxObserver(QSpec(uint8, PerChannel(0)))
    observer.set_range([2.55, 0.0], [2.55, 0.0])
    assert observer.qparams()[0].tolist() == pytest.approx([0.01, 1.0])
    assert observer.dead_channels() == [1]


def test_groups_take_the_shape_of_scale() -> None:
    """Per group the range has scale's shape."""
    observer = MinMaxObserver(QSpec(uint8, PerGroup(1, 2)))
    observer.set_range(torch.zeros(2, 3), torch.ones(2, 3))
    observer(torch.randn(2, 6))
    assert observer.qparams()[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("granularity", "lo", "hi", "error", "text"),
    [
        (PerTensor(), 1.0, 0.5, ArgumentError, "lo=1 is above hi=0.5: give lo <= hi"),
        (PerChannel(0), [0.0, 2.0], [1.0, 1.0], ArgumentError, "above hi=1 at position 1"),
        (PerTensor(), -math.inf, 0.0, ArgumentError, "lo=-inf is not finite"),
        (PerTensor(), 0.0, math.nan, ArgumentError, "hi=nan is not finite"),
        (PerTensor(), 0.0, 1e39, ArgumentError, "hi=1e.39 is not finite in float32"),
        (PerTensor(), [0.0] * 3, 1.0, ArgumentError, "3 ranges, but per-tensor quantization has"),
        (PerTensor(), "0", 1.0, ArgumentTypeError, "lo='0' is not a real number, a list"),
        (PerChannel(0), [], [], ArgumentError, "0 ranges"),
        (
            PerChannel(1),
            torch.zeros(3, 1),
            1.0,
            GranularityError,
            r"shape \(3, 1\) does not lie al",
        ),
    ],
)
def test_bad_ranges_are_refused(
    granularity: Granularity, lo: Any, hi: Any, error: type[Exception], text: str
) -> None:
    """Each refusal shows the value, and what is allowed."""
    with pytest.raises(error, match=text):
        MinMaxObserver(QSpec(uint8, granularity)).set_range(lo, hi)


def test_wrong_number_of_channels_is_refused() -> None:
    """Ranges and data must agree on the channels, whichever comes first."""
    text = "3 ranges were set, but axis 1 of the data.* has 4 channels: give one for each"
    first, second = (MinMaxObserver(QSpec(uint8, PerChannel(1))) for _ in range(2))
    first(torch.randn(2, 4))
    with pytest.raises(GranularityError, match=text):
        first.set_range([0.0] * 3, [1.0] * 3)
    second.set_range([0.0] * 3, [1.0] * 3)
    with pytest.raises(GranularityError, match=text):
        second(torch.randn(2, 4))


def test_fixed_observer_keeps_its_range() -> None:
    """Neither data nor reset change it, nor NaN; its settings decide what it merges with."""
    observer = FixedObserver(QSpec(uint8, PerChannel(1)), [0.0, -1.0], 1.0)
    observer(torch.tensor([[5.0, math.nan]]))
    before = observer.qparams()
    observer.reset()
    observer(torch.randn(7, 2))
    assert all(torch.equal(a, b) for a, b in zip(before, observer.qparams(), strict=True))
    assert observer.count == 14
    with pytest.raises(ArgumentError, match="cannot be merged"):
        observer.merge(FixedObserver(observer.spec, 0.0, 1.0))
