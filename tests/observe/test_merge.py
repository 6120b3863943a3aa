"""However the data are cut and ordered, observers know the same."""

from typing import TypeAlias

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.observe import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    PercentileObserver,
)
from halfstep.spec import PerChannel, QSpec, int4, int8, uint8
from tests.assertions import assert_same_bits
from tests.observe.kinds import FREE_OF_ORDER, KINDS, make, same_state
from tests.strategies import QUICK, float_tensors

FINITE = (0.0, -0.0, 1e-45, 1e-38, 1e30, -1e30, 7.0)
CUT_SPECS = (QSpec(uint8), QSpec(int8, PerChannel(1), symmetric=True), QSpec(int4, PerChannel(-1)))
Parts: TypeAlias = tuple[Tensor, list[Tensor], QSpec]


@st.composite
def parts(draw: st.DrawFn) -> Parts:
    """A tensor (N, 3), cut along N into pieces in any order; some may be empty."""
    rows = draw(st.integers(1, 40))
    x = draw(float_tensors((rows, 3), specials=FINITE))
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=5)))
    pieces = [x[a:b] for a, b in zip([0, *cuts], [*cuts, rows], strict=True)]
    return x, draw(st.permutations(pieces)), draw(st.sampled_from(CUT_SPECS))


def observed(kind: str, spec: QSpec, batches: list[Tensor]) -> Observer:
    """A fresh observer that has seen these batches."""
    observer = make(kind, spec)
    for batch in batches:
        observer(batch)
    return observer


@QUICK
@given(parts(), st.sampled_from(FREE_OF_ORDER))
def test_batches_do_not_show(cut: Parts, kind: str) -> None:
    """Any batch sizes in any order leave the same state as one batch, in every bit."""
    x, pieces, spec = cut
    assert same_state(observed(kind, spec, pieces), observed(kind, spec, [x]))


@QUICK
@given(parts(), st.sampled_from(FREE_OF_ORDER), st.integers(0, 5))
def test_merge_equals_the_whole(cut: Parts, kind: str, at: int) -> None:
    """Two observers merged, either into the other, equal one that saw everything."""
    x, pieces, spec = cut
    whole = observed(kind, spec, [x])
    first, second = pieces[:at], pieces[at:]
    for left, right in ((first, second), (second, first)):
        merged = observed(kind, spec, left).merge(observed(kind, spec, right))
        assert same_state(merged, whole)
        for ours, theirs in zip(merged.qparams(), whole.qparams(), strict=True):
            assert_same_bits(ours, theirs)


@QUICK
@given(parts(), st.sampled_from(sorted(KINDS)), st.integers(0, 3))
def test_reset_forgets_everything(cut: Parts, kind: str, at: int) -> None:
    """After reset, in the middle of anything, an observer equals a fresh one in every bit."""
    x, pieces, spec = cut
    observer = observed(kind, spec, [torch.randn(5, 3, 2) * 100, *pieces[:at]][:1])
    observer.set_range(-1.0, 1.0)
    observer.reset()
    assert same_state(observer, make(kind, spec))
    observer(x)
    assert same_state(observer, observed(kind, spec, [x]))


@pytest.mark.parametrize("kind", KINDS)
def test_merging_what_saw_nothing_changes_nothing(kind: str) -> None:
    """An observer without data is neutral on either side."""
    batch = torch.randn(4, 3)
    whole = observed(kind, CUT_SPECS[1], [batch])
    assert same_state(observed(kind, CUT_SPECS[1], [batch]).merge(make(kind, CUT_SPECS[1])), whole)
    assert same_state(make(kind, CUT_SPECS[1]).merge(whole), whole)


def test_merge_leaves_the_other_alone() -> None:
    """The argument of merge keeps its state."""
    a, b = (observed("histogram", QSpec(uint8), [torch.randn(9) * size]) for size in (1, 1000))
    before = {name: value.clone() for name, value in b.state_dict().items()}
    a.merge(b)
    b.merge(b)
    assert b.count == 18
    assert int(before["values_seen"]) == 9


def test_moving_averages_merge_as_a_weighted_mean() -> None:
    """The documented exception: the mean of the averages, weighted by the values seen."""
    a, b = (MovingAverageObserver(QSpec(uint8)) for _ in range(2))
    a(torch.full((30,), 1.0)), b(torch.full((10,), 5.0))
    a.merge(b)
    assert a.max_val.item() == 2.0
    assert a.count == 40


@pytest.mark.parametrize(
    "other",
    [
        HistogramObserver(QSpec(uint8)),
        PercentileObserver(QSpec(int8), percentile=99.0),
        PercentileObserver(QSpec(uint8), percentile=98.0),
    ],
    ids=repr,
)
def test_merge_wants_the_same_observer(other: Observer) -> None:
    """Another class, spec or setting is refused, and both are shown."""
    observer = PercentileObserver(QSpec(uint8), percentile=99.0)
    with pytest.raises(ArgumentError, match="cannot be merged into PercentileObserver"):
        observer.merge(other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FREE_OF_ORDER)
def test_ten_thousand_batches_in_constant_memory(kind: str) -> None:
    """The state has one size however much has passed, and every value is counted."""
    observer = make(kind)
    observer(torch.tensor([1.0]))
    size = sum(value.nbytes for value in observer.state_dict().values())
    batch = torch.randn(64)
    for step in range(10_000):
        observer(batch * (1 + step % 7))
    assert sum(value.nbytes for value in observer.state_dict().values()) == size < 70_000
    assert observer.count == 640_001


def test_range_scales_with_the_data() -> None:
    """Data times a power of two give a range times that power: the grid has no favourite size."""
    x = torch.randn(2000)
    for kind in FREE_OF_ORDER:
        plain, scaled = observed(kind, QSpec(int4), [x]), observed(kind, QSpec(int4), [x * 2.0**40])
        for small, large in zip(plain.range(), scaled.range(), strict=True):
            assert_same_bits(large, small * 2.0**40)


def test_min_max_is_the_range_seen() -> None:
    """min_val and max_val are the exact ends of what was seen."""
    observer = MinMaxObserver(QSpec(uint8))
    observer(torch.tensor([[0.5, -1.5]])), observer(torch.tensor([[3.25]]))
    assert (observer.min_val.item(), observer.max_val.item(), observer.count) == (-1.5, 3.25, 3)
