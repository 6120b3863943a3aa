"""Requantize against exact fractions, near ties."""

from fractions import Fraction

import hypothesis.strategies as st
import torch
from hypothesis import given

from halfstep.numerics import ops
from tests.strategies import QUICK


def nearest_float32(value: Fraction) -> Fraction:
    """Round a fraction to 24 bits, ties to even; exponents that float32 has."""
    if value == 0:
        return value
    exponent = 0
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    ulp = Fraction(2) ** (exponent - 23)
    return round(value / ulp) * ulp


def requantized(y: float, scale: float, zero_point: int) -> int:
    """clamp(rne(fl(fl(y * fl(1 / scale)) + zero_point))) in fractions."""
    inverse = nearest_float32(1 / Fraction(scale))
    moved = nearest_float32(nearest_float32(Fraction(y) * inverse) + zero_point)
    return max(-128, min(127, round(moved)))


@QUICK
@given(st.lists(st.integers(-300, 300), min_size=1, max_size=40), st.data())
def test_requantize_near_ties(acc: list[int], data: st.DataObject) -> None:
    """Small integers with sy = 2 * sx * sw land on or beside ties: equal to exact fractions."""
    drawn = data.draw(st.tuples(*[st.floats(2**-10, 1.0, width=32)] * 2))
    sx, sw = (torch.tensor([value]) for value in drawn)
    zero_point = data.draw(st.integers(-128, 127))
    y = torch.tensor(acc).float() * sx * sw
    sy = 2 * sx * sw
    q = ops.requantize(y, sy, torch.tensor([zero_point], dtype=torch.int32), -128, 127, torch.int8)
    assert q.tolist() == [requantized(v, sy.item(), zero_point) for v in y.tolist()]


def test_ties_show_the_order_of_operations() -> None:
    """Near ties tell this formula from division by scale, as random values never would."""
    sx, sw = torch.rand(2000) + 0.01, torch.rand(2000) + 0.01
    y, sy = torch.randint(-200, 200, (2000,)).float() * sx * sw, 2 * sx * sw
    zero = torch.zeros(2000, dtype=torch.int32)
    q = ops.requantize(y, sy, zero, -128, 127, torch.int8)
    divided = ops.quantize(y, sy, zero, -128, 127, torch.int8)
    assert 0 < (q != divided).float().mean() < 0.2
    far = torch.randn(2000)
    args = (sy, zero, -128, 127, torch.int8)
    assert (ops.requantize(far, *args) != ops.quantize(far, *args)).sum() < 3


def test_requantize_per_channel_keeps_layout() -> None:
    """Each channel has its own scale; the strides are those of y."""
    y = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    scale = torch.tensor([0.1, 0.01, 1.0]).view(1, 3, 1, 1)
    zero = torch.tensor([0, 5, -5], dtype=torch.int32).view(1, 3, 1, 1)
    q = ops.requantize(y, scale, zero, -128, 127, torch.int8)
    assert q.stride() == y.stride()
    for channel in range(3):
        one = ops.requantize(
            y[:, channel], scale[:1, channel], zero[:1, channel], -128, 127, torch.int8
        )
        assert torch.equal(q[:, channel], one)
