"""The ranges that the searching observers choose, against brute force and their own claims."""

import math

import pytest
import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import fake_quantize
from halfstep.observe import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    Observer,
    PercentileObserver,
)
from halfstep.observe.bins import make_bins
from halfstep.observe.squared_error import squared_error
from halfstep.spec import PerChannel, QSpec, int4, int8, int16, uint4, uint8


def error_of(x: Tensor, spec: QSpec, scale: Tensor, zero_point: Tensor) -> float:
    """The squared error of quantizing x."""
    y = fake_quantize(x, spec, scale=scale, zero_point=zero_point)
    return float((x.double() - y.double()).square().sum())


def observed_error(observer: Observer, x: Tensor) -> float:
    """The squared error with the qparams that an observer of x finds."""
    observer(x)
    return error_of(x, observer.spec, *observer.qparams())


def data(kind: str) -> Tensor:
    """20,000 values of a distribution."""
    bell = torch.randn(20_000)
    return {
        "bell": bell,
        "relu": bell.relu(),
        "long tails": torch.randn(20_000) * torch.randn(20_000).exp(),
        "one outlier": torch.cat([bell, torch.tensor([100.0])]),
        "one side": -bell.abs() - 0.5,
        "even": torch.rand(20_000) - 0.25,
    }[kind]


DATA = ("bell", "relu", "long tails", "one outlier", "one side", "even")
SPECS = (QSpec(int8, symmetric=True), QSpec(uint8), QSpec(int4, symmetric=True), QSpec(uint4))
EVERY = pytest.mark.parametrize("kind", DATA)
FORMATS = pytest.mark.parametrize("spec", SPECS, ids=repr)


@EVERY
@FORMATS
def test_histogram_is_near_the_best_range_there_is(kind: str, spec: QSpec) -> None:
    """The best range of a dense lattice, by the values themselves, is not 2 % better."""
    x = data(kind)
    found = observed_error(HistogramObserver(spec), x)
    tried = MinMaxObserver(spec)
    tried.set_range(*best_ends(x, spec))
    assert found <= 1.02 * error_of(x, spec, *tried.qparams())
    assert found <= observed_error(MinMaxObserver(spec), x)


def best_ends(x: Tensor, spec: QSpec) -> tuple[Tensor, Tensor]:
    """The best of all ranges on a lattice, by the error of the values themselves."""
    lo, hi = x.min().clamp(max=0.0), x.max().clamp(min=0.0)
    longer = torch.maximum(-lo, hi)
    caps = torch.exp2(-torch.linspace(0, 7, 57)) * longer
    lefts = caps if not spec.symmetric and lo < 0 else longer.reshape(1)
    ranges = [
        (torch.maximum(lo, -left), torch.minimum(hi, right))
        for left in lefts
        for right in (caps if hi > 0 else longer.reshape(1))
    ]
    if spec.symmetric:
        ranges = [(-cap, cap) for cap in caps]
    tried = MinMaxObserver(spec)
    sample = x[torch.linspace(0, x.numel() - 1, 2000).long()] if x.max() < 50 else x

    def error(ends: tuple[Tensor, Tensor]) -> float:
        tried.set_range(*ends)
        return error_of(sample, spec, *tried.qparams())

    return min(ranges, key=error)


@FORMATS
@EVERY
def test_expected_error_is_the_true_one(kind: str, spec: QSpec) -> None:
    """The squared error computed from the bins is that of the values, to 2 %."""
    x = data(kind)
    observer = HistogramObserver(spec)
    observer(x)
    bins = make_bins(observer.counts, observer.top, observer.min_val, observer.max_val)
    for factor in (1.0, 0.7, 0.2):
        lo, hi = observer.min_val * factor, observer.max_val * factor
        tried = MinMaxObserver(spec)
        tried.set_range(lo, hi)
        expected = squared_error(bins, lo.reshape(1, 1), hi.reshape(1, 1), spec).item()
        assert expected == pytest.approx(error_of(x, spec, *tried.qparams()), rel=0.02)


def test_histogram_searches_each_channel() -> None:
    """Each channel gets the range that it would get alone, but for its wider bins."""
    x = torch.stack([data(kind)[:20_000] for kind in DATA])
    together = HistogramObserver(QSpec(uint8, PerChannel(0)))
    together(x)
    for at, row in enumerate(x):
        scale, zero_point = (q[at] for q in together.qparams())
        alone = observed_error(HistogramObserver(uint8), row)
        assert error_of(row, QSpec(uint8), scale, zero_point) <= 1.05 * alone


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.9])
@EVERY
def test_percentile_holds_its_share(kind: str, percentile: float) -> None:
    """The ends are the quantiles, to the width of a bin."""
    x = data(kind)
    observer = PercentileObserver(uint8, percentile=percentile)
    observer(x)
    tail = (100 - percentile) / 200
    for end, share in zip(observer.range(), (tail, 1 - tail), strict=True):
        exact = torch.quantile(x.double(), share).item()
        # Between two values any point is a quantile, so the tails may be a few values apart.
        near = torch.quantile(
            x.double(), torch.tensor([share - 1e-4, share + 1e-4]).clamp(0, 1).double()
        )
        width = abs(exact) / 128 + 1e-6
        assert near[0].item() - width <= end.item() <= near[1].item() + width


def test_percentile_is_linear_within_a_bin() -> None:
    """Values spread evenly over a single bin have quantiles all over it."""
    low, high = 1.0, 1.0 + 127 / 128 / 128
    observer = PercentileObserver(uint8, percentile=50.0)
    observer(torch.linspace(low, high, 1001))
    lo, hi = observer.range()
    assert lo.item() == pytest.approx(low + 0.25 * (high - low), abs=(high - low) / 100)
    assert hi.item() == pytest.approx(low + 0.75 * (high - low), abs=(high - low) / 100)


def test_percentile_of_a_symmetric_format_looks_at_magnitudes() -> None:
    """For a symmetric format the share is that of |x|."""
    observer = PercentileObserver(QSpec(int8, symmetric=True), percentile=80.0)
    observer(torch.linspace(-1, 3, 4001))
    lo, hi = observer.range()
    assert hi.item() == pytest.approx(2.2, rel=1 / 128)
    assert lo == -hi


@pytest.mark.parametrize("spec", [QSpec(uint8), QSpec(int8, symmetric=True)], ids=repr)
def test_hundred_percent_is_min_max(spec: QSpec) -> None:
    """At 100 the range is exactly that of the values."""
    x = data("long tails")
    observer = PercentileObserver(spec, percentile=100.0)
    observer(x)
    largest = x.abs().max()
    ends = (-largest, largest) if spec.symmetric else (x.min(), x.max())
    assert [end.item() for end in observer.range()] == [end.item() for end in ends]


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.1, math.nan])
def test_percentile_is_a_share(percentile: float) -> None:
    """A percentile outside (0, 100] is refused."""
    with pytest.raises(ArgumentError, match=f"percentile={percentile} is not a share"):
        PercentileObserver(uint8, percentile=percentile)


def plain_divergence(x: Tensor, cap: int, cells: int, levels: int) -> float:
    """KL(P || Q) of |x| cut at ``cap`` of its cells, as one writes it down, with loops."""
    edges = torch.linspace(0, x.abs().max().item(), cells + 1, dtype=torch.float64)
    counts = torch.histogram(x.abs()[x != 0].double(), edges).hist
    kept = counts[:cap].clone()
    p = kept.clone()
    p[-1] += counts[cap:].sum()
    q = torch.zeros_like(p)
    for level in range(levels):
        start, stop = level * cap // levels, (level + 1) * cap // levels
        some = (p[start:stop] > 0).double()
        q[start:stop] = some * kept[start:stop].sum() / max(float(some.sum()), 1.0)
    p, q = p / p.sum(), q / q.sum()
    q = torch.where((q == 0) & (p > 0), 1e-4, q)
    return float(torch.xlogy(p[p > 0], p[p > 0] / q[p > 0]).sum())


@pytest.mark.parametrize("kind", ["bell", "relu", "long tails", "one outlier"])
def test_entropy_is_near_the_textbook(kind: str) -> None:
    """No cap has, by the textbook's loops, a divergence much below that of the one chosen."""
    x = data(kind)
    observer = EntropyObserver(QSpec(int4, symmetric=True))
    observer(x)
    hi = observer.range()[1].item()
    chosen = plain_divergence(x, round(hi / x.abs().max().item() * 2048), 2048, 8)
    least = min(plain_divergence(x, cap, 2048, 8) for cap in range(16, 2049, 16))
    assert chosen <= least + 0.05 * abs(least) + 0.005


def test_entropy_cuts_an_outlier() -> None:
    """One value far out does not decide the range, on either side or on both."""
    for spec in (QSpec(int8, symmetric=True), QSpec(uint8)):
        for outlier in (60.0, -60.0):
            observer = EntropyObserver(spec)
            observer(torch.cat([torch.randn(20_000), torch.tensor([outlier])]))
            lo, hi = observer.range()
            assert max(-lo.item(), hi.item()) < 8.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_entropy_with_a_float_zero_point_need_not_hold_zero(sign: float) -> None:
    """Values around 5 get a range around 5, outliers on either side are cut, zeros are values."""
    spec = QSpec(uint8, float_zero_point=True)
    x = sign * (5 + 0.3 * torch.randn(20_000))
    observer = EntropyObserver(spec)
    observer(x)
    assert observer.range()[0].item() >= x.min().item()
    assert observer.range()[1].item() <= x.max().item()
    assert observed_error(EntropyObserver(spec), x) <= 1.5 * observed_error(
        HistogramObserver(spec), x
    )
    cut = EntropyObserver(spec)
    cut(torch.cat([x, sign * torch.tensor([65.0, -55.0])]))
    lo, hi = (sign * end.item() for end in cut.range())
    assert max(abs(lo - 5), abs(hi - 5)) < 8
    zeros = EntropyObserver(spec)
    zeros(torch.zeros(100)), zeros(torch.tensor([5.0]))
    assert zeros.range()[0].item() == 0.0


def test_entropy_of_other_formats_holds_zero() -> None:
    """As the docstring says: 0 is in the range though no value is near it."""
    for spec in (QSpec(uint8), QSpec(int8, symmetric=True)):
        observer = EntropyObserver(spec)
        observer(5 + 0.3 * torch.randn(20_000))
        lo, hi = observer.range()
        assert lo.item() <= 0.0
        assert hi.item() > 5.0


def test_many_levels_keep_the_full_range() -> None:
    """With more codes than cells there is nothing to gain from clipping."""
    observer = EntropyObserver(int16)
    x = data("long tails")
    observer(x)
    assert [end.item() for end in observer.range()] == [x.min().item(), x.max().item()]


def test_too_many_scales_are_refused() -> None:
    """A histogram for each of a million scales is an error that says how large it would be."""
    with pytest.raises(ArgumentError, match="would keep 1000000 histograms, 7 GiB: use MinMaxObs"):
        HistogramObserver(QSpec(int4, PerChannel(0)))(torch.empty(1_000_000, 1).fill_(1.0))
