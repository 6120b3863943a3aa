"""An explanation as data and as JSON."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

import halfstep as hs
from halfstep.report.records import SOURCES
from halfstep.spec.recipe import Recipe
from tests import explanations


def refuse(text: str) -> None:
    """What a strict reader does with NaN and Infinity."""
    raise AssertionError(f"{text} is no JSON")


@pytest.mark.parametrize(
    "name", ["network", "hostile", "not_finite", "empty", "dynamic", "identical"]
)
def test_json_is_strict_and_the_same_as_the_dict(name: str) -> None:
    """Any reader of JSON takes it, and gets what ``to_dict`` gives."""
    found = getattr(explanations, name)()
    assert json.loads(found.to_json(), parse_constant=refuse) == found.to_dict()


def test_numbers_that_are_not_finite_are_text_that_makes_them_again() -> None:
    """Infinity and NaN are told apart, and ``float`` reads them."""
    layer = explanations.not_finite().to_dict()["layers"][0]
    assert math.isnan(float(layer["local"]["noise"]))
    assert float(layer["output"]["low"]) == -math.inf
    assert float(explanations.identical().to_dict()["output"]["sqnr"]) == math.inf


def test_everything_is_there_with_what_follows_from_it() -> None:
    """Layers bring numbers, verdicts and integers; nothing is rounded."""
    found = explanations.network()
    plain = found.to_dict()
    assert len(plain["layers"]) == 80
    worst = found.layers[explanations.BAD]
    shown: dict[str, Any] = plain["layers"][explanations.BAD]
    assert shown["verdict"] == "hurts itself"
    assert worst.local is not None
    assert shown["local"]["sqnr"] == worst.local.sqnr
    assert worst.split is not None
    assert shown["split"]["sources"] == {name: worst.split.sources[name] for name in SOURCES}
    assert worst.weight is not None
    assert shown["weight"]["integers"] == [list(row) for row in worst.weight.integers]
    assert plain["is_equal"] is False


def test_recipes_can_be_read_again() -> None:
    """The suggested recipe in the JSON is the recipe."""
    found = explanations.network()
    plain = json.loads(found.to_json())
    assert Recipe.from_dict(plain["suggested_recipe"]) == found.suggested_recipe


def test_a_recipe_with_objects_of_this_process_is_text() -> None:
    """A rule for a module object cannot be written as data; the JSON says what it was."""
    recipe = Recipe("mine", [hs.Rule("fc", weight=lambda w: w)])
    plain = replace(explanations.network(2), recipe=recipe).to_dict()
    assert plain["recipe"].startswith("Recipe('mine'")
