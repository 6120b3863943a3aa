"""Tables against Python's own floats, and what becomes of values that are no numbers."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.numerics import tables
from halfstep.numerics.tables import Codes
from halfstep.spec import QDType, int8, int16, uint8, uint16
from tests.strategies import QUICK


@QUICK
@given(
    source=st.sampled_from([int8, uint8, uint8.within(0, 15)]),
    target=st.sampled_from([int8, uint8, int16, uint16, int8.within(-3, 100)]),
    scales=st.tuples(*[st.floats(2**-10, 1.0, width=32)] * 2),
    data=st.data(),
)
def test_every_entry(
    source: QDType, target: QDType, scales: tuple[float, float], data: st.DataObject
) -> None:
    """The function of a code's value, to the nearest code by half to even, clamped."""
    zx = data.draw(st.integers(source.qmin, source.qmax))
    zy = data.draw(st.integers(target.qmin, target.qmax))
    table = tables.build(torch.tanh, Codes(source, scales[0], zx), Codes(target, scales[1], zy))
    assert table.dtype == target.storage
    lowest = torch.iinfo(source.storage).min
    for place, entry in enumerate(table.tolist()):
        steps = math.tanh((place + lowest - zx) * scales[0]) / scales[1]
        if abs(steps % 1 - 0.5) > 1e-9:  # the last bit of tanh may decide a tie
            assert entry == min(max(round(steps) + zy, target.qmin), target.qmax)


def test_ties_go_to_the_even_step() -> None:
    """Rounding comes before the zero point."""
    table = tables.build(lambda x: x / 2, Codes(uint8, 1.0, 0), Codes(uint8, 1.0, 3))
    assert table[:8].tolist() == [3, 3, 4, 5, 5, 5, 6, 7]


def test_scales_are_float32() -> None:
    """A scale with more digits means the float32 next to it, as everywhere."""
    exact = torch.tensor(0.1).item()
    target = Codes(uint16, 1e-4, 0)
    found, wanted = (tables.build(torch.square, Codes(int8, s, 0), target) for s in (0.1, exact))
    assert torch.equal(found.to(torch.int64), wanted.to(torch.int64))
    assert tables.values(Codes(int8, 0.1, 0))[129].item() == exact


@pytest.mark.parametrize("target", [int8, uint8, int16])
def test_what_is_no_number(target: QDType) -> None:
    """Infinities saturate; NaN counts as 0, the zero point."""
    logs = tables.build(torch.log, Codes(int8, 1.0, 0), Codes(target, 0.5, 7))
    assert logs[128].item() == target.qmin  # log 0
    assert logs[0].item() == 7  # log -128
    roots = tables.build(torch.rsqrt, Codes(int8, 1.0, 0), Codes(target, 0.5, 7))
    assert roots[128].item() == target.qmax


def test_a_row_for_each_channel() -> None:
    """A function that returns several rows makes as many tables."""
    slopes = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    table = tables.build(lambda x: x * slopes, Codes(uint8, 1.0, 0), Codes(uint8, 1.0, 0))
    assert table.shape == (2, 256)
    assert table[:, 5].tolist() == [5, 10]
