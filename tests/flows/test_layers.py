"""From rules to layers: names, globs, types, modules, and what is wrong with them."""

from typing import Any

import pytest
from torch import nn

import halfstep as hs
from halfstep.flows.layers import find_layers
from tests.flows.models import Small


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ("conv", ["conv"]),
        ("fc?", ["fc1", "fc2"]),
        ("*", ["conv", "relu", "fc1", "fc2", "attention", "attention.out_proj"]),
        (nn.Linear, ["fc1", "fc2", "attention.out_proj"]),
        ("attention.*", ["attention.out_proj"]),
    ],
)
def test_match(match: Any, names: list[str]) -> None:
    """A name, a glob and a type find the layers that one would expect, in the model's order."""
    assert [layer.name for layer in find_layers(Small(), {match: hs.int8})] == names


def test_match_a_module_object() -> None:
    """A module matches itself alone."""
    model = Small()
    (layer,) = find_layers(model, {model.fc2: hs.int8})
    assert layer.name == "fc2"


def test_the_first_rule_wins() -> None:
    """Later rules do not see what an earlier one matched, keep_float included."""
    rules = [
        hs.Rule("fc1", keep_float=True),
        hs.Rule("fc2", weight=hs.int4),
        hs.Rule(nn.Linear, weight=hs.int8),
    ]
    found = {layer.name: layer.rule.weight for layer in find_layers(Small(), rules)}
    assert found == {"fc2": hs.int4, "attention.out_proj": hs.int8}


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        ({"convv": hs.int8}, "'convv' matches no layer of Small: the nearest names are conv"),
        ({nn.LSTM: hs.int8}, "LSTM matches no layer of Small: the model has Conv2d, Linear"),
        ({nn.Tanh(): hs.int8}, "Tanh() matches no layer of Small"),
        ([hs.Rule("fc*", weight=hs.int8), hs.Rule("fc1", weight=hs.int4)], "is never reached"),
        (["conv"], "a recipe holds 'conv', which is no rule"),
    ],
)
def test_a_match_of_nothing_is_an_error(recipe: Any, text: str) -> None:
    """A typing mistake does not pass for success."""
    with pytest.raises(hs.HalfstepError) as raised:
        find_layers(Small(), recipe)
    assert text in str(raised.value)


def test_a_model_is_needed() -> None:
    """Anything else is named."""
    with pytest.raises(hs.ArgumentTypeError, match="model is a str"):
        find_layers("model", {"conv": hs.int8})  # type: ignore[arg-type]


def test_a_reused_module_is_found_once() -> None:
    """A module under two names is one layer, found by either name."""
    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module("again", model[0])
    assert [layer.name for layer in find_layers(model, {nn.Linear: hs.int8})] == ["0"]
    assert [layer.name for layer in find_layers(model, {"again": hs.int8})] == ["again"]
