"""What is known of the values of weights and of activations."""

import pytest
import torch

import halfstep as hs
from halfstep.graph.edges import Edge
from halfstep.report.channels import channel_ranges
from halfstep.report.values import Activations, bias_overflow, weight_values
from tests.graph.zoo import rand

EDGE = Edge(hs.QSpec(hs.uint8), 0.01, 100)


def test_weight_by_channel() -> None:
    """Ranges, integers and scales are those of the tensors."""
    w = rand(6, 4, 3, 3)
    w[2] = 0
    w[4] *= 100
    q = hs.quantize(w, hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True))
    found = weight_values("conv.weight", w, q)
    assert (found.dead, found.outliers, found.axis, found.saturated) == ((2,), (4,), 0, 0.0)
    assert found.channel_high == tuple(w.flatten(1).amax(1).tolist())
    assert found.scale == tuple(q.scale.flatten().tolist())
    assert found.integers[5] == tuple(q.int_repr()[5].flatten().tolist())
    assert (found.low, found.high) == (float(w.min()), float(w.max()))
    assert sum(found.histogram.counts) == w.numel()
    assert found.grid_low <= found.low <= found.high <= found.grid_high * 1.01


def test_weight_of_a_transposed_convolution_has_channels_on_axis_1() -> None:
    """The axis is that of the scales."""
    w = rand(3, 5, 2)
    found = weight_values("w", w, hs.quantize(w, hs.QSpec(hs.int8, hs.PerChannel(1))))
    assert (found.axis, len(found.channel_low), len(found.scale)) == (1, 5, 5)


def test_weight_in_groups_packed() -> None:
    """4-bit integers in groups are shown unpacked, by rows; at most 64 x 64 of them."""
    w = rand(80, 128)
    q = hs.quantize(w, hs.QSpec(hs.int4, hs.PerGroup(1, 32), symmetric=True))
    found = weight_values("w", w, q)
    assert (len(found.integers), len(found.integers[0]), len(found.scale)) == (64, 64, 80 * 4)
    assert len(found.channel_low) == 80


def test_weight_beyond_its_integers() -> None:
    """The saturated share counts values whose code is cut off."""
    w = torch.tensor([[0.1, 0.2, 5.0, -5.0]])
    q = hs.quantize(w, hs.QSpec(hs.int8), scale=0.01, zero_point=0)
    assert weight_values("w", w, q).saturated == 0.5


def test_activations_are_those_of_all_batches() -> None:
    """Collected batch by batch as from all values at once."""
    seen = Activations("x", EDGE, None, 1)
    batches = [rand(2, 3, 4, 4), rand(5, 3, 2, 2) * 3, torch.zeros(1, 3, 1, 1)]
    for x in batches:
        seen.add(x)
    every = torch.cat([x.transpose(0, 1).flatten(1) for x in batches], 1)
    found = seen.record()
    assert (found.low, found.high) == (float(every.min()), float(every.max()))
    assert found.channel_low == tuple(every.amin(1).tolist())
    assert found.channel_high == tuple(every.amax(1).tolist())
    codes = (every / 0.01).round() + 100
    assert found.saturated == float(((codes < 0) | (codes > 255)).double().mean())
    assert sum(found.histogram.counts) == every.numel()
    assert (found.grid_low, found.grid_high) == pytest.approx((-1.0, 1.55))
    assert (found.scale, found.zero_point) == ((0.01,), (100,))


def test_channels_that_change_in_number_are_none() -> None:
    """Attention over sentences of two lengths: the last dimension is no channel."""
    seen = Activations("x", EDGE, None, -1)
    for length in (3, 5):
        seen.add(torch.ones(2, length))
    found = seen.record()
    assert (found.channel_low, found.channel_high, found.low, found.high) == ((), (), 1.0, 1.0)


def test_rows_have_no_scale_of_their_own() -> None:
    """What finds its scales while it runs has ranges, and no grid beyond them."""
    seen = Activations("x", None, hs.QSpec(hs.uint8, hs.PerToken()), -1)
    seen.add(torch.tensor([[1.0, -2.0]]))
    found = seen.record()
    assert (found.scale, found.saturated, found.grid_low, found.grid_high) == ((), 0.0, -2.0, 1.0)


def test_nothing_seen() -> None:
    """A value that no batch reached has no statistics."""
    assert Activations("x", EDGE, None, 1).record() is None


def test_ranges_leave_out_what_is_not_finite() -> None:
    """An infinity or NaN is no range; a channel of them alone counts as zero."""
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[1.0, inf, nan], [-1.0, 2.0, nan]])
    low, high = channel_ranges(x, 1)
    assert low.tolist() == [-1.0, 2.0, 0.0]
    assert high.tolist() == [1.0, 2.0, 0.0]


def test_overflowing_bias_by_channel() -> None:
    """Only the channel whose bias needs more than 32 bits is named; groups have no one scale."""
    w = torch.tensor([[1e-5, 1e-5], [1.0, 1.0]])
    q = hs.quantize(w, hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True))
    assert bias_overflow(torch.tensor([100.0, 100.0]), 1e-3, q) == (0,)
    grouped = hs.quantize(rand(2, 4), hs.QSpec(hs.int8, hs.PerGroup(1, 2), symmetric=True))
    assert bias_overflow(torch.tensor([1e30, 1e30]), 1e-3, grouped) == ()
