"""Error metrics."""

import math

import pytest
import torch

from halfstep.numerics.metrics import max_error_in_steps, sqnr, sqnr_of


def test_sqnr_of_uniform_noise() -> None:
    """A ramp rounded to a step has SQNR 10 log10(12 mean(x^2) / step^2), to a hundredth of a dB."""
    x = torch.linspace(-1, 1, 100_001, dtype=torch.float64)
    step = 2 / 255
    rounded = (x / step).round() * step
    expected = 10 * math.log10(12 * x.square().mean().item() / step**2)
    assert sqnr(x, rounded) == pytest.approx(expected, abs=0.01)


def test_sqnr_of_halved_noise() -> None:
    """Half the error is 6.02 dB more."""
    x, noise = torch.randn(1000), torch.randn(1000) * 0.01
    gain = sqnr(x, x + noise / 2) - sqnr(x, x + noise)
    assert gain == pytest.approx(20 * math.log10(2), abs=0.01)


def test_the_ends_of_sqnr() -> None:
    """Equal tensors have infinite SQNR; noise without a signal has minus infinity."""
    x, zero = torch.ones(3), torch.zeros(3)
    assert sqnr(x, x) == sqnr(zero, zero) == sqnr(zero[:0], zero[:0]) == math.inf
    assert sqnr(zero, x) == -math.inf
    assert sqnr(x, zero) == 0


def test_sqnr_of_sums() -> None:
    """The dB rule and its ends: no noise, no signal, NaN, infinities, quotients no float holds."""
    inf, nan = math.inf, math.nan
    assert sqnr_of(100.0, 1.0) == 20
    assert sqnr_of(0.0, 0.0) == sqnr_of(2.0, 0.0) == sqnr_of(inf, 1.0) == inf
    assert sqnr_of(0.0, 2.0) == sqnr_of(1.0, inf) == -inf
    assert sqnr_of(1e300, 1e-300) == pytest.approx(6000)
    for signal, noise in ((nan, 1.0), (1.0, nan), (nan, 0.0), (0.0, nan), (inf, inf)):
        assert math.isnan(sqnr_of(signal, noise))
    assert math.isnan(sqnr(torch.tensor([nan, 1.0]), torch.ones(2)))
    assert math.isnan(sqnr(torch.zeros(2), torch.tensor([nan, 1.0])))


def test_max_error_counts_in_steps() -> None:
    """The greatest error over its own scale, which broadcasts; 0 for empty tensors."""
    x = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    scale = torch.tensor([[0.1], [10.0]])
    off = x + torch.tensor([[0.025, 0.0], [0.0, 5.0]])
    assert max_error_in_steps(x, off, scale) == pytest.approx(0.5)
    assert max_error_in_steps(x[:0], off[:0], scale) == 0
