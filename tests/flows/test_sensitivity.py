"""Sensitivity: the damage of each layer alone, worst first."""

import math

import pytest
import torch
from torch import nn

import halfstep as hs
from tests.flows.models import Recurrent, Small

IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_each_value_is_that_of_the_layer_alone() -> None:
    """The number of a layer is the output's SQNR under a simulation of that layer alone."""
    model = Small().eval()
    ranking = hs.sensitivity(model, [IMAGES[:2], IMAGES[2:]], {"conv": hs.int4, "fc1": hs.int4})
    assert [one.sqnr for one in ranking] == sorted(one.sqnr for one in ranking)
    for one in ranking:
        with torch.no_grad():
            y = torch.cat([model(IMAGES[:2]), model(IMAGES[2:])])
            with hs.simulate(model, {one.layer: hs.int4}):
                other = torch.cat([model(IMAGES[:2]), model(IMAGES[2:])])
        expected = 10 * math.log10(y.square().sum() / (y - other).square().sum())
        assert one.sqnr == pytest.approx(expected, abs=1e-3)


def test_a_planted_fault_comes_first() -> None:
    """The layer with a wild channel is named first."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(6)])
    with torch.no_grad():
        model[3].weight[0] *= 1000
        model[4].weight[:, 0] /= 1000
    ranking = hs.sensitivity(
        model, torch.randn(32, 16), {nn.Linear: hs.QSpec(hs.int8, symmetric=True)}
    )
    assert ranking[0].layer == "3"
    assert len(ranking) == 6


def test_outputs_may_be_nested_and_batches_a_generator() -> None:
    """A tuple with a dict is compared over all its float tensors; a generator is read once."""
    batches = (torch.randint(0, 20, (2, 5)) for _ in range(2))
    ranking = hs.sensitivity(Recurrent(), batches, {nn.LSTM: hs.int8, nn.Embedding: hs.int8})
    assert {one.layer for one in ranking} == {"lstm", "embedding"}
    assert all(math.isfinite(one.sqnr) for one in ranking)


def test_a_layer_that_changes_nothing_is_last_and_infinite() -> None:
    """No change is no noise."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[127.0, 0.0], [0.0, -127.0]]))
    ranking = hs.sensitivity(
        model, torch.randn(4, 2), {"0": hs.int2, "1": hs.QSpec(hs.int8, symmetric=True)}
    )
    assert ranking[-1].layer == "1"
    assert ranking[-1].sqnr == math.inf


def test_no_float_output_to_compare() -> None:
    """A model of integers says so."""

    class Argmax(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x).argmax(1)

    with pytest.raises(hs.ArgumentError, match="returns no float tensor"):
        hs.sensitivity(Argmax(), torch.randn(4, 2), {"fc": hs.int8})


def test_a_glob_leaves_out_layers_without_weights() -> None:
    """A ReLU that a glob takes as well has nothing to simulate, and is not in the ranking."""
    ranking = hs.sensitivity(Small(), IMAGES, {"*": hs.int8})
    names = {one.layer for one in ranking}
    assert names == {"conv", "fc1", "fc2", "attention", "attention.out_proj"}


def test_nan_comes_first() -> None:
    """A layer that turns the output into NaN hurts most."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    recipe = {"0": hs.int8, "1": lambda w: w * float("nan"), "2": hs.int2}
    ranking = hs.sensitivity(model, torch.randn(8, 4), recipe)
    assert [one.layer for one in ranking] == ["1", "2", "0"]
    assert math.isnan(ranking[0].sqnr)


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """``progress=True`` shows a bar on stderr."""
    hs.sensitivity(Small(), IMAGES, {"conv": hs.int8}, progress=True)
    assert "sensitivity" in capsys.readouterr().err
