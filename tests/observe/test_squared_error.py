"""The search for the least squared error over many scales: each as if it were alone."""

import pytest
import torch
from torch import Tensor

from halfstep.numerics.histogram import bin_edges
from halfstep.observe import HistogramObserver
from halfstep.observe.bins import Bins, make_bins, make_coarse_bins
from halfstep.observe.squared_error import least_squared_error, squared_error
from halfstep.spec import PerChannel, PerGroup, QSpec, int2, int4, int8, uint4

MANY = (
    QSpec(int8, PerChannel(0)),
    QSpec(int4, PerGroup(1, 32)),
    QSpec(int4, PerGroup(1, 32), symmetric=True),
    QSpec(int2, PerGroup(1, 64)),
    QSpec(uint4, PerChannel(0), float_zero_point=True),
)
EVERY = pytest.mark.parametrize("spec", MANY, ids=repr)


def observed(spec: QSpec) -> HistogramObserver:
    """An observer of (256, 256) values whose rows differ in size and shape.

    One is all zeros, some have no negative values.
    """
    rows = torch.logspace(-3, 3, 256).unsqueeze(1)
    x = rows * torch.randn(256, 256) * (torch.randn(256, 256) * rows.log10()).exp()
    x[8] = 0.0
    x[16:64:8] = x[16:64:8].abs()
    observer = HistogramObserver(spec)
    observer(x)
    return observer


def state(observer: HistogramObserver) -> list[Tensor]:
    """Counts (S, B), top, least and greatest value (S,)."""
    parts = observer.top, observer.min_val, observer.max_val
    return [observer.counts.flatten(0, -2), *(part.flatten() for part in parts)]


def exact(bins: Bins, lo: Tensor, hi: Tensor, spec: QSpec) -> Tensor:
    """The squared error of one range for each scale."""
    return squared_error(bins, lo.reshape(1, -1), hi.reshape(1, -1), spec).squeeze(0)


@EVERY
def test_scales_do_not_see_each_other(spec: QSpec) -> None:
    """Each scale gets among many what the same counts get alone."""
    observer = observed(spec)
    parts = state(observer)
    together = [end.flatten() for end in observer.range()]
    for at in range(0, together[0].numel(), together[0].numel() // 32):
        own = [part[at : at + 1] for part in parts]
        alone = least_squared_error(make_coarse_bins(*own), make_bins(*own), spec)
        for found, end in zip(alone, together, strict=True):
            assert found.item() == pytest.approx(end[at].item(), rel=1e-6)


@EVERY
def test_no_range_found_loses_more_than_the_full_one(spec: QSpec) -> None:
    """Coarse bins and steps may mislead the search, so the full range is a candidate to the end."""
    observer = observed(spec)
    bins = make_bins(*state(observer))
    found = exact(bins, *observer.range(), spec)
    full = exact(bins, observer.min_val, observer.max_val, spec)
    assert bool((found <= full * (1 + 1e-9)).all())


@EVERY
def test_bins_are_those_that_hold_values(spec: QSpec) -> None:
    """As many columns as the fullest scale needs, with the edges of the grid cut at the ends."""
    counts, top, lo, hi = state(observed(spec))
    bins = make_bins(counts, top, lo, hi)
    filled = (counts > 0).sum(-1)
    assert bins.counts.shape == (counts.shape[0], int(filled.max()))
    lower, upper = bin_edges(top, counts.shape[-1])
    for at in range(0, counts.shape[0], counts.shape[0] // 32):
        used, held = counts[at] > 0, int(filled[at])
        assert torch.equal(bins.counts[at, :held], counts[at][used].double())
        for grid, edge in ((lower, bins.lower), (upper, bins.upper)):
            cut = grid[at][used].clamp(lo[at].double(), hi[at].double())
            assert torch.equal(edge[at, :held], cut)
        assert not bins.counts[at, held:].any()
    assert bool((bins.lower[:, 1:] >= bins.upper[:, :-1]).all())


def test_values_around_one_code_keep_it() -> None:
    """With few codes rounding is no noise: all values near the one code above 0 lose little."""
    x = 5 + 0.3 * torch.randn(20_000)
    spec = QSpec(int2, symmetric=True)
    observer = HistogramObserver(spec)
    observer(x)
    lost = exact(make_bins(*state(observer)), *observer.range(), spec)
    assert lost.item() <= 1.02 * (x - x.mean()).square().sum().item()
