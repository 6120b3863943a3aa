"""Histograms of values that come in batches."""

import hypothesis.strategies as st
import torch
from hypothesis import given

from halfstep.report.histogram import BINS, GrowingHistogram
from tests.strategies import QUICK, float_tensors

BATCHES = st.lists(float_tensors((40,), specials=(0.0, -0.0)), min_size=1, max_size=6)


@QUICK
@given(BATCHES, st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=6))
def test_every_value_is_counted_in_its_bin(
    batches: list[torch.Tensor], factors: list[float]
) -> None:
    """The counts are those of all values at once in the bins that the last batch left."""
    histogram = GrowingHistogram()
    values = [x * factor for x, factor in zip(batches, factors, strict=False)]
    for x in values:
        histogram.add(x, float(x.min()), float(x.max()))
    found, every = histogram.record(), torch.cat(values).double()
    assert sum(found.counts) == every.numel()
    assert len(found.counts) <= BINS
    width = (found.high - found.low) / len(found.counts)
    assert found.low - width / 100 <= every.min()
    assert every.max() <= found.high + width / 100
    expected = torch.histogram(every, len(found.counts), range=(found.low, found.high)).hist
    near = (torch.tensor(found.counts).cumsum(0) - expected.cumsum(0)).abs()
    at_edges = ((every - found.low) / width % 1 - 0.5).abs() > 0.499
    assert int(near.max()) <= int(at_edges.sum())  # float32 may round a value across an edge


def test_one_value() -> None:
    """A constant has one bin, at its place."""
    histogram = GrowingHistogram()
    histogram.add(torch.full((5,), 3.0), 3.0, 3.0)
    found = histogram.record()
    assert found.counts == (5,)
    assert found.low <= 3.0 <= found.high


def test_none() -> None:
    """Without values there are no bins."""
    histogram = GrowingHistogram()
    histogram.add(torch.ones(0), 0.0, 0.0)
    assert histogram.record().counts == ()


def test_values_that_are_not_finite_are_left_out() -> None:
    """NaN and infinities are in no bin."""
    histogram = GrowingHistogram()
    histogram.add(torch.tensor([1.0, torch.nan, torch.inf, 2.0]), 1.0, 2.0)
    assert sum(histogram.record().counts) == 2
