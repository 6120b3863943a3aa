"""Granularity: the shape of ``scale``, and views that do not fit."""

import copy
import dataclasses
import math
import pickle
import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError
from halfstep.spec import Granularity, PerChannel, PerGroup, PerTensor, PerToken
from tests.strategies import QUICK, Shape, granularities, shapes


@pytest.mark.parametrize(
    ("granularity", "shape", "expected"),
    [
        (PerTensor(), (), ()),
        (PerTensor(), (2, 3, 4), (1, 1, 1)),
        (PerTensor(), (0, 3), (1, 1)),
        (PerChannel(0), (5,), (5,)),
        (PerChannel(1), (2, 4, 5, 3), (1, 4, 1, 1)),
        (PerChannel(-1), (2, 4, 5, 3), (1, 1, 1, 3)),
        (PerChannel(-4), (2, 4, 5, 3), (2, 1, 1, 1)),
        (PerChannel(1), (2, 0), (1, 0)),
        (PerGroup(1, 32), (64, 128), (64, 4)),
        (PerGroup(-1, 2), (3, 4, 6), (3, 4, 3)),
        (PerGroup(0, 4), (4,), (1,)),
        (PerGroup(0, 3), (0, 2), (0, 2)),
        (PerToken(), (8, 16, 384), (8, 16, 1)),
        (PerToken(), (7,), (1,)),
        (PerToken(), (0, 7), (0, 1)),
    ],
    ids=str,
)
def test_scale_shape(granularity: Granularity, shape: Shape, expected: Shape) -> None:
    """The shape of ``scale`` is what says which elements share one."""
    assert granularity.scale_shape(shape) == expected


@QUICK
@given(st.data())
def test_scale_divides_the_tensor(data: st.DataObject) -> None:
    """Scale has x's dimensions, and each of its sizes is 1, x's, or a divisor of x's."""
    shape = data.draw(shapes())
    granularity = data.draw(granularities(shape))
    scale = granularity.scale_shape(shape)
    assert len(scale) == len(shape)
    assert all(
        s == 1 or d == s == 0 or (s and d % s == 0) for d, s in zip(shape, scale, strict=True)
    )
    assert math.prod(shape) == 0 or math.prod(shape) % math.prod(scale) == 0


@QUICK
@given(st.data())
def test_negative_axes_mean_the_same(data: st.DataObject) -> None:
    """``normalized`` counts from the front and changes nothing else, however often."""
    shape = data.draw(shapes(min_dims=1))
    granularity = data.draw(granularities(shape))
    normalized = granularity.normalized(len(shape))
    assert normalized.scale_shape(shape) == granularity.scale_shape(shape)
    assert normalized.normalized(len(shape)) == normalized
    assert normalized.axis is None or 0 <= normalized.axis < len(shape)


@pytest.mark.parametrize("granularity", [PerTensor(), PerChannel(-1), PerGroup(1, 32), PerToken()])
def test_a_granularity_is_a_frozen_value(granularity: Granularity) -> None:
    """Equality, hash, copies and pickles go by value; nothing can be changed."""
    for twin in (copy.deepcopy(granularity), pickle.loads(pickle.dumps(granularity))):
        assert twin == granularity
        assert hash(twin) == hash(granularity)
    for field in dataclasses.fields(granularity):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(granularity, field.name, 3)


def test_kinds_differ() -> None:
    """Granularities of different kinds are never equal."""
    kinds = [PerTensor(), PerToken(), PerChannel(0), PerChannel(1), PerGroup(0, 1), PerGroup(0, 2)]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("granularity", [PerChannel(4), PerChannel(-5), PerGroup(4, 1)])
def test_an_axis_that_is_not_there_is_refused(granularity: PerChannel | PerGroup) -> None:
    """The error names the axis, the number of dimensions and what is allowed."""
    text = f"axis={granularity.axis} is not an axis of a 4-dimensional tensor: allowed is -4 to 3"
    with pytest.raises(ArgumentError, match=re.escape(text)):
        granularity.scale_shape((2, 4, 5, 3))
    with pytest.raises(ArgumentError, match=re.escape(text)):
        granularity.normalized(4)


def test_a_number_has_no_axis() -> None:
    """A 0-dimensional tensor has neither an axis nor rows."""
    text = "axis=0 is not an axis of a 0-dimensional tensor: allowed is none: it has no dimensions"
    with pytest.raises(ArgumentError, match=text):
        PerChannel(0).scale_shape(())
    text = "a 0-dimensional tensor has no rows: use PerTensor() for a single number"
    with pytest.raises(GranularityError, match=re.escape(text)):
        PerToken().scale_shape(())


@pytest.mark.parametrize(("size", "divisor"), [(3, 2), (7, 8), (9, 8), (100, 64), (33, 32)])
def test_a_group_size_that_does_not_divide_is_refused(size: int, divisor: int) -> None:
    """The error suggests the nearest divisor."""
    text = (
        f"group size {size} does not divide axis 1, which has 64 values: "
        f"use a divisor such as {divisor}, or pad the axis"
    )
    with pytest.raises(GranularityError, match=text):
        PerGroup(-1, size).scale_shape((8, 64))


@pytest.mark.parametrize("size", [0, -1])
def test_a_group_holds_at_least_one_value(size: int) -> None:
    """A group size below 1 cannot be constructed."""
    with pytest.raises(
        ArgumentError, match=f"size={size} is not a group size: allowed is 1 or more"
    ):
        PerGroup(0, size)


@pytest.mark.parametrize("wrong", [1.0, "0", None, True])
def test_positions_are_integers(wrong: object) -> None:
    """An axis or group size of another type cannot be constructed; a bool is not an integer."""
    text = re.escape(f"axis={wrong!r} is not an integer: give a position such as 0 or -1")
    with pytest.raises(ArgumentTypeError, match=text):
        PerChannel(wrong)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ArgumentTypeError, match=text):
        PerGroup(wrong, 1)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ArgumentTypeError, match=re.escape(f"size={wrong!r} is not an integer")):
        PerGroup(0, wrong)  # type: ignore[arg-type]  # what is tested
