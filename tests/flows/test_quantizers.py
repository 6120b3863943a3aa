"""Quantizers of one's own: what they may return, and how their saturation is counted."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs


class Given:
    """A quantizer that says what integers it means."""

    def __init__(self, spec: hs.QSpec, scale: Any, zero_point: Any) -> None:
        self.spec, self.given = spec, (scale, zero_point)

    def __call__(self, x: Tensor) -> Tensor:
        """Fake-quantize with the given qparams."""
        scale, zero_point = self.given
        return hs.fake_quantize(x, self.spec, scale=scale, zero_point=zero_point)

    def qparams(self) -> tuple[Any, Any]:
        """As they were given."""
        return self.given


PER_CHANNEL = hs.QSpec(hs.int8, hs.PerChannel(-2))


@pytest.mark.parametrize(
    ("spec", "scale", "zero_point"),
    [
        (hs.QSpec(hs.int8), 0.001, 0),
        (hs.QSpec(hs.int8), torch.tensor(0.001), torch.tensor(0)),
        (PER_CHANNEL, torch.full((4,), 0.001), torch.zeros(4, dtype=torch.int64)),
        (PER_CHANNEL, [0.001] * 4, [0] * 4),
    ],
    ids=["numbers", "tensors", "per channel", "lists"],
)
def test_saturation_is_counted_whatever_form_qparams_have(
    spec: hs.QSpec, scale: Any, zero_point: Any
) -> None:
    """Numbers, lists and tensors of any integer dtype, as hs.quantize takes them."""
    model = nn.Sequential(nn.Linear(4, 4))
    with hs.simulate(model, {"0": Given(spec, scale, zero_point)}) as report:
        model(torch.randn(2, 4))
    weight = model[0].weight
    codes = (weight / 0.001).round()
    expected = ((codes < -128) | (codes > 127)).float().mean().item()
    assert report["0"]["weight"].saturated == pytest.approx(expected)
    assert expected > 0


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "returned NoneType for torch.float32"),
        (torch.ones(1), r"returned torch.float32 \(1,\) for torch.float32 \(4, 4\)"),
        (torch.ones(4, 4).half(), r"returned torch.float16 \(4, 4\)"),
    ],
)
def test_what_is_no_tensor_of_the_same_shape_is_refused(returned: Any, text: str) -> None:
    """The error names the layer."""
    model = nn.Sequential(nn.Linear(4, 4))
    with (
        hs.simulate(model, {"0": lambda x: returned}),
        pytest.raises(hs.ArgumentError, match=f"the weight of 0: the quantizer {text}"),
    ):
        model(torch.randn(2, 4))


def test_a_function_that_works_in_place_harms_nothing() -> None:
    """It gets a copy: weights and activations stay as they were."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    before, x = model[0].weight.clone(), torch.randn(2, 4)
    kept = x.clone()
    rules = [
        hs.Rule("0", weight=lambda w: w.detach().round_(), input=lambda v: v.detach().zero_()),
    ]
    with hs.simulate(model, rules):
        model(x)
    assert torch.equal(model[0].weight, before)
    assert torch.equal(x, kept)


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ("int8", "a recipe holds 'int8', which is no rule"),
        ({}, "the recipe is empty"),
        (
            {"0": hs.MinMaxObserver},
            r"the class MinMaxObserver: give an observer, MinMaxObserver\(spec",
        ),
        ([hs.Rule("0", output=hs.int8, observer=lambda spec: {})], "makes a dict"),
        ({"1": hs.int8}, "matches ReLU, without a weight of two or more dimensions: quantize what"),
        ({"": hs.int8}, r"match the layers inside it, such as '\*', or quantize"),
    ],
)
def test_a_mistaken_recipe_is_explained(recipe: Any, text: str) -> None:
    """What was given, and what to give instead."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with pytest.raises(hs.HalfstepError, match=text), hs.simulate(model, recipe):
        pass
