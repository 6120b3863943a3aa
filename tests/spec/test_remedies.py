"""Remedies as data: checked, printed, written and read."""

from typing import Any

import pytest

import halfstep as hs
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import static_int8
from halfstep.spec.remedies import remedy_from_dict, remedy_to_dict

SOME = [
    hs.remedies.Equalize(),
    hs.remedies.Equalize(limit=None),
    hs.remedies.Smooth(0.25, elsewhere=0.75),
    hs.remedies.CorrectBias(),
    hs.remedies.ReestimateBatchNorm(),
]


@pytest.mark.parametrize("remedy", SOME)
def test_a_remedy_survives_its_dict_and_its_print(remedy: Any) -> None:
    """What is written is read back equal, and what is printed is Python for it."""
    assert remedy_from_dict(remedy_to_dict(remedy)) == remedy
    assert eval(repr(remedy), vars(hs)) == remedy  # noqa: S307  (our own text)


def test_a_recipe_has_one_remedy_of_a_kind() -> None:
    """A second takes the place of the first; the recipe itself stays as it was."""
    recipe = static_int8().with_remedies(hs.remedies.Smooth(0.5), hs.remedies.CorrectBias())
    other = recipe.with_remedies(hs.remedies.Smooth(0.7))
    assert other.remedies == (hs.remedies.CorrectBias(), hs.remedies.Smooth(0.7))
    assert recipe.remedies[0] == hs.remedies.Smooth(0.5)
    with pytest.raises(hs.ArgumentError, match="Smooth is there twice: a remedy works once"):
        Recipe("two", remedies=(hs.remedies.Smooth(0.5), hs.remedies.Smooth(0.7)))


def test_recipes_are_added_with_their_remedies() -> None:
    """What is added decides."""
    one = static_int8().with_remedies(hs.remedies.Smooth(0.5))
    other = Recipe("other", remedies=(hs.remedies.Smooth(0.7),))
    assert (one + other).remedies == (hs.remedies.Smooth(0.7),)


def test_files_from_before_have_no_remedies() -> None:
    """A recipe that was written without the field is read, and one without remedies has none."""
    plain = static_int8().to_dict()
    assert "remedies" not in plain
    assert Recipe.from_dict(plain).remedies == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hs.remedies.Smooth(2), "alpha=2: allowed is 0 to 1"),
        (lambda: hs.remedies.Smooth("much"), "alpha='much' is no number"),
        (lambda: hs.remedies.Smooth(elsewhere=-1), "elsewhere=-1: allowed is 0 to 1"),
        (lambda: hs.remedies.Equalize(limit=0.5), "limit=0.5: allowed is 1 or more"),
        (lambda: hs.remedies.Equalize(limit=True), "limit=True is no number"),
        (lambda: Recipe("x", remedies=["smooth"]), "'smooth' is no remedy: give hs.remedies"),
        (lambda: Recipe.from_dict({"remedies": [{"name": "Smoke"}]}), "is no remedy: allowed are"),
        (
            lambda: Recipe.from_dict({"remedies": [{"name": "Smooth", "beta": 1}]}),
            "is no remedy: allowed are",
        ),
    ],
)
def test_what_is_no_remedy_is_refused(make: Any, message: str) -> None:
    """With what was given, and what is allowed."""
    with pytest.raises(hs.HalfstepError, match=message):
        make()
