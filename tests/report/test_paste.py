"""A suggested recipe is Python that runs."""

from types import SimpleNamespace

import pytest
import torch

import halfstep as hs
from halfstep.report.paste import to_python
from halfstep.spec.recipe import Recipe

BASE = hs.recipes.static_int8()


def run(text: str) -> Recipe:
    """The recipe that the text makes for a user who has a result."""
    names = {"hs": hs, "torch": torch, "result": SimpleNamespace(recipe=BASE)}
    exec(text, names)  # noqa: S102  (that it runs is what is tested)
    made = names["recipe"]
    assert isinstance(made, Recipe)
    return made


def test_added_rules_run_as_printed() -> None:
    """What is pasted makes the same recipe: names, formats, operators and observers."""
    edge = hs.QSpec(hs.uint8)
    recipe = BASE.with_rules(
        hs.Rule("blocks.3.*", keep_float=True),
        hs.Rule(torch.ops.aten.add, output=edge, observer=hs.HistogramObserver),
        hs.Rule("fc", weight=hs.QSpec(hs.int4, hs.PerGroup(1, 32), symmetric=True)),
    )
    text = to_python(recipe, BASE)
    assert text.startswith("recipe = hs.recipes.static_int8().with_rules(")
    assert run(text) == recipe


def test_remedies_run_as_printed() -> None:
    """Remedies are pasted with the rules, or alone."""
    smoothed = BASE.with_remedies(hs.remedies.Smooth(0.7), hs.remedies.CorrectBias())
    for recipe in (smoothed, smoothed.with_rules(hs.Rule("fc", keep_float=True))):
        assert run(to_python(recipe, BASE)) == recipe


@pytest.mark.parametrize(
    "base",
    [hs.recipes.dynamic_int8(), hs.recipes.weight_only(), hs.recipes.weight_only(hs.int4, 32)],
    ids=lambda base: str(base.name),
)
def test_halfsteps_own_recipes_need_no_result(base: Recipe) -> None:
    """They are made by their names, as where a file was explained."""
    recipe = base.with_rules(hs.Rule("fc", keep_float=True))
    text = to_python(recipe, base)
    assert "result" not in text
    assert run(text) == recipe


def test_a_recipe_that_only_has_such_a_name() -> None:
    """It is written in full."""
    recipe = Recipe("weight_only(int4)", [hs.Rule("fc", keep_float=True)])
    assert run(to_python(recipe, BASE)) == recipe


def test_ones_own_recipe_is_that_of_the_result() -> None:
    """What is added to it is all that is printed."""
    base = Recipe("mine", [hs.Rule("fc", keep_float=True)])
    text = to_python(base.with_rules(hs.Rule("conv1", keep_float=True)), base)
    assert text.startswith("recipe = result.recipe.with_rules(")
    assert "'fc'" not in text


def test_another_recipe_is_written_in_full() -> None:
    """A recipe that does not extend the base stands for itself."""
    recipe = Recipe("other", [hs.Rule("fc", keep_float=True)], [hs.Rule("*", weight=hs.int8)])
    assert run(to_python(recipe, BASE)) == recipe


def test_what_is_no_python_is_shown_as_it_is() -> None:
    """A function has no text to paste; its rule is shown all the same."""
    recipe = BASE.with_rules(hs.Rule("fc", weight=lambda w: w))
    assert "<function" in to_python(recipe, BASE)
