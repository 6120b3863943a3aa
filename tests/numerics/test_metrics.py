"""Error metrics."""

import math

import pytest
import torch

from halfstep.numerics.metrics import cosine, max_error_in_steps, sqnr


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


def test_max_error_counts_in_steps() -> None:
    """The greatest error over its own scale, which broadcasts; 0 for empty tensors."""
    x = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    scale = torch.tensor([[0.1], [10.0]])
    off = x + torch.tensor([[0.025, 0.0], [0.0, 5.0]])
    assert max_error_in_steps(x, off, scale) == pytest.approx(0.5)
    assert max_error_in_steps(x[:0], off[:0], scale) == 0


def test_cosine_of_angles() -> None:
    """1 along, 0 across, -1 against; two zero vectors count as equal, one as across."""
    x, y = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 2.0])
    assert cosine(x, 2 * x) == pytest.approx(1)
    assert cosine(x, y) == pytest.approx(0)
    assert cosine(x, -x) == pytest.approx(-1)
    assert cosine(0 * x, 0 * x) == 1
    assert cosine(x, 0 * x) == 0
