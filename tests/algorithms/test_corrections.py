"""After a correction, a layer's channels have the moments of the float layer's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from halfstep.algorithms.batch_norm_reestimation import reestimated
from halfstep.algorithms.bias_correction import corrected
from halfstep.graph.moments import Moments


def made(shape: tuple[int, ...], seed: int) -> list[Tensor]:
    """Two batches."""
    torch.manual_seed(seed)
    spread = torch.rand(shape[1]).reshape(-1, *[1] * (len(shape) - 2)) + 0.5
    return [torch.randn(shape, dtype=torch.float64) * spread + seed for _ in range(2)]


@pytest.mark.parametrize(("shape", "axis"), [((4, 3), -1), ((4, 3, 5, 5), -3), ((4, 3, 7), -2)])
def test_corrected_means_are_the_expected_ones(shape: tuple[int, ...], axis: int) -> None:
    """And the new bias is the old one less the shift that was there."""
    values, expected = made(shape, 1), Moments.of(made(shape, 2), axis)
    bias = torch.arange(3.0)
    after, new = corrected(values, expected, bias, axis=axis)
    torch.testing.assert_close(Moments.of(after, axis).mean, expected.mean)
    shift = Moments.of(values, axis).mean - expected.mean
    torch.testing.assert_close(new, bias.double() - shift)


@pytest.mark.parametrize(("shape", "axis"), [((4, 3), -1), ((4, 3, 5, 5), -3)])
def test_reestimated_layers_have_the_expected_moments(shape: tuple[int, ...], axis: int) -> None:
    """Mean and variance; and factors and bias bring just what was returned."""
    values, expected = made(shape, 1), Moments.of(made(shape, 2), axis)
    bias = torch.arange(3.0)
    after, factors, new = reestimated(values, expected, bias, axis=axis)
    found = Moments.of(after, axis)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.var, expected.var)
    wide = (-1, *[1] * (len(shape) - 2))
    by_hand = factors.reshape(wide) * (values[0] - bias.reshape(wide)) + new.reshape(wide)
    torch.testing.assert_close(after[0], by_hand)


def test_a_constant_channel_keeps_its_factor() -> None:
    """Its spread says nothing; its mean is corrected."""
    expected = Moments.of([torch.ones(4, 1)], 1)
    after, factors, _ = reestimated([torch.zeros(4, 1)], expected, torch.zeros(1), axis=1)
    assert factors.item() == 1
    assert (after[0] == 1).all()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 1000))
def test_moments_of_parts_are_those_of_the_whole(sizes: list[int], seed: int) -> None:
    """However the data are cut into batches."""
    torch.manual_seed(seed)
    batches = [torch.randn(size, 3, 2) * 10 + 100 for size in sizes]
    whole = torch.cat(batches).movedim(1, 0).flatten(1).double()
    found = Moments.of(batches, 1)
    torch.testing.assert_close(found.mean, whole.mean(1))
    torch.testing.assert_close(found.var, whole.var(1, correction=0))
