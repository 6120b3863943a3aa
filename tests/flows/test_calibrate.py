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


def test_attention_calibrates_by_type() -> None:
    """A layer that is never called as a module is left out with a warning; the others are there."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.warns(hs.HalfstepWarning, match="no data reached self_attn.out_proj") as caught:
        observers = hs.calibrate(
            layer, torch.randn(2, 5, 8), {nn.Linear: hs.MinMaxObserver(hs.int8)}
        )
    assert set(observers) == {"linear1", "linear2"}
    assert caught[0].filename == __file__


def test_a_fake_quantize_is_a_template_and_a_function_is_refused() -> None:
    """Nothing that a recipe asks for is skipped without a word."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module = hs.FakeQuantize(hs.MovingAverageObserver(hs.uint8))
    found = hs.calibrate(model, torch.randn(4, 2), [hs.Rule("0", output=module)])
    assert isinstance(found["0"], hs.MovingAverageObserver)
    with pytest.raises(hs.ArgumentTypeError, match=r"the output of 1 is to become .*a function"):
        hs.calibrate(model, torch.randn(4, 2), [hs.Rule("1", output=torch.sign)])


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """``progress=True`` shows a bar on stderr; by default there is none without a terminal."""
    recipe = {"conv": hs.MinMaxObserver(hs.int8)}
    hs.calibrate(Small(), IMAGES, recipe)
    assert capsys.readouterr().err == ""
    hs.calibrate(Small(), IMAGES, recipe, progress=True)
    assert "calibrating" in capsys.readouterr().err


def test_a_function_takes_no_limits() -> None:
    """``max_batches`` means nothing to a function that runs the model itself."""
    with pytest.raises(hs.ArgumentError, match="leave out max_batches="):
        hs.calibrate(
            Small(), lambda m: m(IMAGES), {"conv": hs.MinMaxObserver(hs.int8)}, max_batches=1
        )
