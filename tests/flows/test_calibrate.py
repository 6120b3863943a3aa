"""Calibration: data runs once, and each layer's ranges are what it computed."""

from typing import Any

import pytest
import torch
from torch import nn

import halfstep as hs
from tests.flows.models import Recurrent, Small

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_ranges_are_those_of_the_layers_outputs() -> None:
    """Each layer that matches gets its own copy of the template, with its own range."""
    model = Small()
    template = hs.MinMaxObserver(hs.QSpec(hs.uint8))
    observers = hs.calibrate(model, [IMAGES[:3], IMAGES[3:]], {"conv": template, "fc2": template})
    assert list(observers) == ["conv", "fc2"]
    with torch.no_grad():
        conv, out = model.eval().conv(IMAGES), model(IMAGES)
    torch.testing.assert_close(observers["conv"].max_val.max(), conv.max())
    torch.testing.assert_close(observers["fc2"].min_val.min(), out.min())
    assert template.count == 0


def test_rules_observe_inputs_and_outputs() -> None:
    """A rule's spec makes an observer of its kind, for the input and for the output."""
    rule = hs.Rule("fc1", input=hs.uint8, output=hs.int8, observer=hs.HistogramObserver)
    observers = hs.calibrate(Small(), IMAGES, [rule])
    assert {name: type(one) for name, one in observers.items()} == {
        "fc1:input": hs.HistogramObserver,
        "fc1": hs.HistogramObserver,
    }


def test_the_model_is_left_as_it_was() -> None:
    """No hook remains, the mode is restored, and nothing keeps a graph."""
    model = Small().train()
    observers = hs.calibrate(model, IMAGES, {"conv": hs.MinMaxObserver(hs.QSpec(hs.int8))})
    assert model.training
    assert model.conv.training
    assert not model.conv._forward_hooks
    assert not observers["conv"].max_val.requires_grad


def test_batch_size_does_not_matter() -> None:
    """One batch or many: the same qparams in every bit."""
    recipe = {"relu": hs.HistogramObserver(hs.QSpec(hs.uint8))}
    model = nn.Sequential()
    model.add_module("relu", nn.ReLU())
    whole = hs.calibrate(model, IMAGES, recipe)["relu"].qparams()
    parts = hs.calibrate(model, [IMAGES[:1], IMAGES[1:]], recipe)["relu"].qparams()
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_what_saw_no_data_is_named() -> None:
    """A layer that the batches do not run is an error, not an empty range."""
    model = Small()
    with pytest.raises(hs.ArgumentError) as raised:
        hs.calibrate(
            model,
            lambda m: m.encode(IMAGES),
            {
                "conv": hs.MinMaxObserver(hs.QSpec(hs.int8)),
                "fc?": hs.MinMaxObserver(hs.QSpec(hs.int8)),
            },
        )
    assert "no data reached fc1, fc2" in str(raised.value)


def test_bad_values_name_the_layer() -> None:
    """NaN in an activation says where."""
    bad = IMAGES.clone()
    bad[0, 0, 0, 0] = float("nan")
    with pytest.raises(hs.NonFiniteError, match="the output of conv"):
        hs.calibrate(Small(), bad, {"conv": hs.MinMaxObserver(hs.QSpec(hs.int8))})


@pytest.mark.parametrize(
    "recipe", [{"conv": hs.int8}, [hs.Rule("conv", weight=hs.int8)]], ids=["dict", "rule"]
)
def test_nothing_to_observe(recipe: Any) -> None:
    """Weights need no data; a recipe of weights alone says so."""
    with pytest.raises(hs.ArgumentError, match="there is nothing to observe"):
        hs.calibrate(Small(), IMAGES, recipe)


def test_recurrent_outputs_and_tokens() -> None:
    """Integer inputs are passed by; an LSTM's output is observed, its states are not its output."""
    observers = hs.calibrate(
        Recurrent(),
        torch.randint(0, 20, (2, 5)),
        [hs.Rule("lstm", input=hs.uint8, output=hs.uint8), hs.Rule("embedding", output=hs.int8)],
    )
    assert set(observers) == {"lstm:input", "lstm", "embedding"}
