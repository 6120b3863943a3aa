"""Summaries equal the numbers computed in one piece, for every layout and dtype."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.formats import chunks
from halfstep.formats.histogram import histogram
from halfstep.formats.summary import PlainSummary, QuantizedSummary, summarize
from halfstep.spec import int4, int32
from halfstep.tensor import from_int_repr, quantize
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS, THOROUGH, Case, cases


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors in several pieces."""
    monkeypatch.setattr(chunks, "CHUNK", 7)


@given(case=cases())
@THOROUGH
def test_codes_are_counted_as_in_one_piece(case: Case) -> None:
    """Codes used, saturation and the ranges are those of the integers as a whole."""
    q = quantize(case.x, case.spec, scale=case.scale, zero_point=case.zero_point)
    summary, ints = summarize(q), q.int_repr().to(torch.int64).reshape(-1)
    assert isinstance(summary, QuantizedSummary)
    low, high = case.bounds
    share = ((ints == low) | (ints == high)).double().mean().item() if ints.numel() else 0.0
    assert math.isclose(summary.saturated, share)
    assert summary.code_range == ((int(ints.min()), int(ints.max())) if ints.numel() else None)
    if summary.counts is None:
        assert q.spec.dtype.bits > 16
        return
    assert int(summary.counts.sum()) == ints.numel()
    used = len(ints.unique()) / (high - low + 1) if ints.numel() else None
    assert summary.codes_used == used


@given(case=cases(x_dtypes=FLOAT_DTYPES), bins=st.integers(1, 20))
@THOROUGH
def test_histograms_lose_nothing(case: Case, bins: int) -> None:
    """Every finite value, and every code of a quantized tensor, is in exactly one bin."""
    x = case.x
    assert sum(bin_.count for bin_ in histogram(x, summarize(x), bins)) == int(x.isfinite().sum())
    q = quantize(x, case.spec, scale=case.scale, zero_point=case.zero_point)
    if q.spec.dtype.bits <= 16:
        counted = histogram(q, summarize(q), bins)
        assert sum(bin_.count for bin_ in counted) == q.numel()
        assert len(counted) <= bins


@pytest.mark.parametrize("layout", sorted(MEMORY_FORMATS))
def test_plain_ranges_are_those_of_the_whole(layout: str) -> None:
    """Least and greatest finite value, for every layout."""
    x = MEMORY_FORMATS[layout](torch.randn(2, 3, 4, 5))
    assert summarize(x) == PlainSummary(x.min().item(), x.max().item(), 0, 0)


def test_what_is_not_finite_is_counted_apart() -> None:
    """NaN and infinities do not hide the range."""
    x = torch.tensor([1.0, math.nan, -2.0, math.inf, -math.inf])
    assert summarize(x) == PlainSummary(-2.0, 1.0, 1, 2)
    assert summarize(torch.tensor([math.nan])) == PlainSummary(None, None, 1, 0)
    assert summarize(torch.empty(0)) == PlainSummary(None, None, 0, 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.uint64, torch.float8_e5m2])
def test_dtypes_without_comparisons_have_ranges(dtype: torch.dtype) -> None:
    """They are widened piece by piece."""
    x = torch.tensor([0, 1]).to(dtype)
    assert summarize(x) == PlainSummary(0, 1, 0, 0)


def test_complex_tensors_have_no_range() -> None:
    """They are not ordered."""
    assert summarize(torch.ones(2, dtype=torch.complex64)) == PlainSummary(None, None, 0, 0)


def test_32_bit_codes_are_not_counted_one_by_one() -> None:
    """Their range and saturation are known, their histogram is not."""
    q = from_int_repr(torch.tensor([-(2**31), 5]), int32, scale=1.0, zero_point=0)
    summary = summarize(q)
    assert isinstance(summary, QuantizedSummary)
    assert (summary.codes_used, summary.saturated, summary.counts) == (None, 0.5, None)
    assert histogram(q, summary, 4) == []


def test_repeated_elements_are_read_once() -> None:
    """A tensor that shows one element a million million times is summarized at once."""
    x = torch.ones(1).expand(10**6, 10**6)
    assert summarize(x) == PlainSummary(1.0, 1.0, 0, 0)


def test_progress_adds_up_to_the_bytes() -> None:
    """What is reported are the bytes of the unpacked integers or the values."""
    seen: list[int] = []
    summarize(torch.randn(10, 10), seen.append)
    assert sum(seen) == 400
    assert len(seen) > 10
    summarize(quantize(torch.randn(30), int4), seen.append)
    assert sum(seen) == 430
