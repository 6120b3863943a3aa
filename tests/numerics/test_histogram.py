"""Counts on the fixed grid: what is in a bin, and that nothing but the values decides it."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import histogram, native, ops
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, SPECIALS, Case, cases

FINITE = tuple(value for value in SPECIALS if abs(value) < 3e38)


def tops(x: Tensor, shape: torch.Size) -> Tensor:
    """The octave of the largest magnitude of each block."""
    lo, hi = ops.min_max(x, shape)
    return histogram.top_octave(torch.maximum(lo.abs(), hi.abs()))


def empty(shape: torch.Size, mantissa_bits: int) -> Tensor:
    """Counts of nothing for a scale of this shape."""
    return torch.zeros((*shape, histogram.bins_for(mantissa_bits)), dtype=torch.int64)


def counts_of(x: Tensor, top: Tensor, mantissa_bits: int = 4) -> Tensor:
    """The histogram of one tensor."""
    counts = empty(top.shape, mantissa_bits)
    ops.histogram_(counts, x, top)
    return counts


@QUICK
@given(cases(specials=FINITE, float_zero_point=False, min_side=1))
def test_operator_equals_the_plain_formula(case: Case) -> None:
    """Every dtype, memory format and granularity is counted as the plain formula counts it."""
    top = tops(case.x, case.scale.shape)
    plain = empty(top.shape, 4)
    histogram.histogram_(plain, case.x, top)
    assert torch.equal(counts_of(case.x, top), plain)
    assert plain.sum() == case.x.numel()


@pytest.mark.parametrize("mantissa_bits", [0, 3, 7])
def test_each_value_lies_in_its_bin(mantissa_bits: int) -> None:
    """A value is counted in the one bin whose edges hold it; small ones count as 0."""
    x = torch.randn(200) * torch.exp2(torch.randint(-40, 40, (200,)).float())
    top = tops(x, torch.Size([1]))
    for value in x:
        counts = counts_of(value.reshape(1), top, mantissa_bits)
        lower, upper = histogram.bin_edges(top, counts.shape[-1])
        at = int(counts.argmax())
        if at == counts.shape[-1] // 2:
            assert abs(value) < upper[0, at + 1]
        else:
            assert lower[0, at] <= value <= upper[0, at]


def test_bins_touch_and_ascend() -> None:
    """The bins cover all numbers up to the top octave, in order, without gaps."""
    lower, upper = histogram.bin_edges(torch.tensor([254], dtype=torch.int32), 8193)
    gaps = lower[0, 1:] - upper[0, :-1]
    assert (gaps[:4095] == 0).all()
    assert (gaps[-4095:] == 0).all()
    assert upper[0, -1] == 2.0**128


@pytest.mark.parametrize("seed", range(5))
def test_window_moves_as_if_it_had_been_there(seed: int) -> None:
    """Counting in a low window and moving it up equals counting in the high one."""
    x = torch.randn(500, generator=torch.Generator().manual_seed(seed))
    low = tops(x, torch.Size([1]))
    high = low + 11 * seed
    moved = histogram.move_window(counts_of(x, low), low, high)
    assert torch.equal(moved, counts_of(x, high))


def test_counts_add() -> None:
    """Counts of parts add to the counts of the whole, with threads and without."""
    x = torch.randn(300_000)
    top = tops(x, torch.Size([1]))
    parts = sum(counts_of(part, top) for part in x.split(1000))
    assert isinstance(parts, Tensor)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        assert_same_bits(counts_of(x, top), parts)


@pytest.mark.skipif(not native.is_loaded(), reason="only the kernels write to bare memory")
def test_counts_must_be_whole_numbers_in_a_row() -> None:
    """A counts tensor that the kernel cannot write to is refused, with what it is."""
    top = torch.full((1,), 130, dtype=torch.int32)
    with pytest.raises(ArgumentError, match=r"counts is torch\.float32"):
        ops.histogram_(torch.zeros(1, 129), torch.ones(3), top)


@pytest.mark.skipif(
    not native.is_loaded(), reason="the plain formula indexes, and so checks, itself"
)
def test_counts_must_have_a_row_for_each_scale() -> None:
    """Counts that are too few for the scales never reach the kernel, which would write on."""
    counts = torch.zeros(1, 129, dtype=torch.int64)
    with pytest.raises(ArgumentError, match=r"counts has shape \(1, 129\), and top \(3,\)"):
        native.histogram_(counts, torch.ones(3, 4).t()[0], torch.full((3,), 130, dtype=torch.int32))
