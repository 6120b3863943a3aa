"""Where a granularity goes when dimensions move, as arithmetic on shapes alone."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from halfstep import GranularityError, PerChannel, PerGroup, PerTensor, PerToken
from halfstep.spec import Granularity
from halfstep.tensor.axes import Kind, kinds, moved, reshaped
from tests.strategies import QUICK, Shape, granularities, shapes


def test_kinds() -> None:
    """Shared, kept and cut, by granularity; a single run is shared."""
    shared, kept, cut = Kind.SHARED, Kind.KEPT, Kind.CUT
    assert kinds(PerTensor(), (2, 6)) == [shared, shared]
    assert kinds(PerChannel(1), (2, 6)) == [shared, kept]
    assert kinds(PerGroup(1, 3), (2, 6)) == [kept, cut]
    assert kinds(PerGroup(1, 6), (2, 6)) == [kept, shared]
    assert kinds(PerToken(), (2, 6)) == [kept, shared]


@given(st.data(), shapes(min_dims=1))
@QUICK
def test_kinds_are_what_the_scale_shape_says(data: st.DataObject, shape: Shape) -> None:
    """A shared dimension has one scale, a kept one as many as indices."""
    granularity = data.draw(granularities(shape)).normalized(len(shape))
    scale = granularity.scale_shape(shape)
    for kind, size, count in zip(kinds(granularity, shape), shape, scale, strict=True):
        expected = {Kind.SHARED: 1, Kind.KEPT: size}.get(kind, count)
        assert count == expected or 0 in shape


def test_moved() -> None:
    """The axis goes where it is told; without one, one scale is left, or one for each element."""
    assert moved(PerChannel(0), (2, 6), 1, (6, 2)) == PerChannel(1)
    assert moved(PerChannel(0), (2, 6), None, (6,)) == PerTensor()
    assert moved(PerToken(), (2, 6), 0, (6, 2)) == PerGroup(0, 6)
    assert moved(PerToken(), (2, 6), 1, (2, 3)) == PerToken()
    assert moved(PerGroup(1, 3), (2, 6), None, (2,)) == PerChannel(0)
    assert moved(PerGroup(1, 3), (2, 4, 6), None, (2, 4)) == PerGroup(1, 1)
    assert moved(PerGroup(0, 3), (3,), None, ()) == PerTensor()


@pytest.mark.parametrize(
    ("granularity", "shape", "new_shape", "expected"),
    [
        (PerTensor(), (2, 6), (12,), PerTensor()),
        (PerChannel(1), (2, 3, 4), (2, 3, 2, 2), PerChannel(1)),
        (PerChannel(1), (2, 3, 4), (1, 2, 3, 4), PerChannel(2)),
        (PerChannel(2), (2, 3, 4), (6, 4), PerChannel(1)),
        (PerChannel(1), (4, 1), (2, 2), PerTensor()),
        (PerGroup(1, 3), (2, 6), (12,), PerGroup(0, 3)),
        (PerGroup(1, 3), (2, 6), (2, 2, 3), PerGroup(2, 3)),
        (PerGroup(1, 3), (2, 6), (4, 1, 3), PerGroup(2, 3)),
        (PerToken(), (2, 3, 4), (6, 4), PerToken()),
        (PerToken(), (2, 3, 4), (24,), PerGroup(0, 4)),
    ],
)
def test_reshaped(
    granularity: Granularity, shape: Shape, new_shape: Shape, expected: Granularity
) -> None:
    """A reshape that keeps the axis or the runs whole finds them again."""
    assert reshaped(granularity, shape, new_shape) == expected
    if math.prod(granularity.scale_shape(shape)) > 1:
        assert expected.scale_shape(new_shape) != (1,) * len(new_shape)


@pytest.mark.parametrize(
    ("granularity", "shape", "new_shape"),
    [
        (PerChannel(0), (2, 3), (6,)),
        (PerChannel(0), (4, 3), (2, 2, 3)),
        (PerGroup(1, 3), (2, 6), (6, 2)),
        (PerGroup(0, 2), (4, 3), (12,)),
        (PerToken(), (2, 6), (2, 2, 3)),
    ],
)
def test_reshaped_refuses(granularity: Granularity, shape: Shape, new_shape: Shape) -> None:
    """A reshape that merges or cuts the axis, or tears a run, raises."""
    with pytest.raises(GranularityError, match="would merge or cut"):
        reshaped(granularity, shape, new_shape)
