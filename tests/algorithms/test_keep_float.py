"""The search for the shortest list, on made-up measurements."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfstep.algorithms.keep_float.maths import Found, ranked, shortest

LAYERS = tuple("abcdefgh")


def meets(members: tuple[str, ...], losses: dict[str, float], target: float) -> bool:
    """Whether noise adds up to no more than the target, the kept layers' left out."""
    return value(members, losses) >= target


def value(members: tuple[str, ...], losses: dict[str, float]) -> float:
    """What is measured where every layer that is not kept costs something of its own."""
    return -math.fsum(losses[name] for name in losses if name not in members)


def search(losses: dict[str, float], target: float, **options: int) -> Found:
    """The list for such losses, the greatest first."""
    order = ranked(losses)
    return shortest(order, lambda members: value(members, losses), target, **options)


LOSSES = st.lists(st.floats(0.125, 8, width=16), min_size=len(LAYERS), max_size=len(LAYERS)).map(
    lambda found: dict(zip(LAYERS, found, strict=True))
)


@given(LOSSES, st.floats(-30, -0.01))
def test_where_losses_add_up_the_list_is_the_shortest_of_all(
    losses: dict[str, float], target: float
) -> None:
    """No list with fewer members meets the target, and the list does."""
    found = search(losses, target)
    assert found.is_met
    assert meets(found.members, losses, target)
    if found.members:
        fewer = combinations(LAYERS, len(found.members) - 1)
        assert not any(meets(members, losses, target) for members in fewer)


@given(st.sets(st.frozensets(st.sampled_from(LAYERS), min_size=1), min_size=1), st.randoms())
def test_no_member_can_be_left_out_whatever_is_measured(
    enough: set[frozenset[str]], random: object
) -> None:
    """The target holds with supersets of some sets, in any order of the layers: 1-minimal."""
    order = list(LAYERS)
    random.shuffle(order)

    def measure(members: tuple[str, ...]) -> float:
        return float(any(some <= set(members) for some in enough))

    found = shortest(order, measure, 1.0, most=1000)
    assert found.is_met
    assert found.is_minimal
    assert measure(found.members) == 1
    assert not any(
        measure(tuple(name for name in found.members if name != left)) for left in found.members
    )


@given(st.dictionaries(st.sampled_from(LAYERS), st.floats(0, 1), min_size=1), st.randoms())
def test_the_list_holds_even_where_measurements_are_noise(
    noise: dict[str, float], random: object
) -> None:
    """What is returned was itself measured to meet the target."""
    seen: dict[tuple[str, ...], float] = {(): 0.0, LAYERS: 1.0}

    def measure(members: tuple[str, ...]) -> float:
        return seen.setdefault(members, random.random())

    found = shortest(LAYERS, measure, 0.5)
    assert found.is_met
    assert seen[found.members] >= 0.5
    assert found.reached == seen[found.members]


def test_nothing_is_kept_where_the_target_is_met_at_once() -> None:
    """One measurement says so."""
    found = search(dict.fromkeys(LAYERS, 0.1), -1)
    assert (found.members, found.is_met, found.measured) == ((), True, 1)
    assert found.before == found.reached == pytest.approx(-0.8)


def test_a_target_that_cannot_be_met() -> None:
    """Nothing is kept, and the most that was measured is said."""
    found = shortest(LAYERS, lambda members: len(members) / 10, 3.0)
    assert (found.members, found.is_met, found.reached) == ((), False, 0.8)


def test_two_that_only_suffice_together_are_found_among_many() -> None:
    """Neither has a gain alone, and both stand at the end of the order."""
    many = tuple(f"layer{place}" for place in range(80))

    def measure(members: tuple[str, ...]) -> float:
        return float({"layer70", "layer79"} <= set(members))

    found = shortest(many, measure, 1.0)
    assert found.members == ("layer70", "layer79")
    assert found.values == (0.0, 1.0)
    assert found.measured <= 60


def test_one_outside_takes_the_place_of_two() -> None:
    """A layer with no gain to speak of alone serves better than two with some."""

    def measure(members: tuple[str, ...]) -> float:
        kept = set(members)
        return float({"a", "b", "c"} <= kept or {"a", "d"} <= kept)

    assert shortest("abcd", measure, 1.0).members == ("a", "d")


def test_no_more_is_measured_than_allowed() -> None:
    """What meets the target is returned, and that it may not be the shortest is said."""
    counted: list[tuple[str, ...]] = []
    many = tuple(f"layer{place}" for place in range(80))

    def measure(members: tuple[str, ...]) -> float:
        counted.append(members)
        return float({"layer3", "layer40", "layer79"} <= set(members))

    found = shortest(many, measure, 1.0, most=20)
    assert found.is_met
    assert not found.is_minimal
    assert len(counted) == len(set(counted)) == found.measured <= 20 + len(found.members)
    assert measure(found.members) == 1


def test_what_is_no_number_meets_no_target() -> None:
    """NaN counts as the worst, alone and in the order."""
    assert ranked({"a": math.nan, "b": -9.0}) == ["b", "a"]
    found = shortest("ab", lambda members: 1.0 if "a" in members else math.nan, 0.5)
    assert found.members == ("a",)
    assert found.before == -math.inf
