"""Conditions on sizes: read from traced code, evaluated, told."""

import pytest

import halfstep as hs
from halfstep.graph.sizes import at_least_two, check, parse


@pytest.mark.parametrize(
    ("code", "fits", "fails"),
    [
        ("L['t'][0].size()[1] == 3", (2, 3), (3, 2)),
        ("3 == L['t'][0].size()[1]", (2, 3), (3, 2)),
        ("L['t'][0].size()[0] % 4 != 0", (2, 1), (8, 1)),
        ("(-2) + 2*L['t'][0].size()[0] > 4", (4, 1), (3, 1)),
        ("max(1, L['t'][0].size()[0] // 2, 0) >= 3", (6, 1), (5, 1)),
        ("min(L['t'][0].size()[0], L['t'][0].size()[1]) < 2", (9, 1), (2, 2)),
        ("L['t'][0].size()[0] > 4 or L['t'][0].size()[1] > 4", (1, 5), (4, 4)),
        ("L['t'][0].size()[0] > 4 and L['t'][0].size()[1] > 4", (5, 5), (4, 5)),
        ("8 % L['t'][0].size()[0] == 0", (4, 1), (0, 1)),
        ("L['t'][0].size()[0] / 2 <= 1.5", (3, 1), (4, 1)),
        ("L['t'][0].size()[0]**2 == 9", (3, 1), (2, 1)),
    ],
)
def test_what_python_means(code: str, fits: tuple[int, int], fails: tuple[int, int]) -> None:
    """A parsed condition is true where the code is, and false where a division by zero is."""
    condition = parse(code)
    assert condition.holds([fits])
    assert not condition.holds([fails])


@pytest.mark.parametrize(
    "code", ["L['t'][0].size()[1]", "print(1) == 1", "x ==", "L['t'][0].stride()[0] == 1"]
)
def test_other_code_is_refused(code: str) -> None:
    """Nothing but arithmetic on sizes is kept, and nothing is executed."""
    with pytest.raises(hs.ArgumentError, match="depends on sizes in a way that is not kept"):
        parse(code)


def test_the_error_says_what_was_given_and_what_to_do() -> None:
    """A size outside the conditions is told in the names of forward."""
    conditions = [at_least_two(0, 0), parse("L['t'][1].size()[0] == 2*L['t'][0].size()[0]")]
    check(conditions, [(2, 3), (4,)], ["x", "y"])
    with pytest.raises(hs.ArgumentError) as raised:
        check(conditions, [(2, 3), (5,)], ["x", "y"])
    assert str(raised.value) == (
        "the inputs are x (2, 3), y (5,), but the model was captured for "
        "y.size(0) == 2 * x.size(0): capture it with an example of the new sizes"
    )


def test_text_keeps_the_meaning() -> None:
    """Brackets stand where the order of evaluation needs them."""
    condition = parse("(2 + L['t'][0].size()[0]) * -L['t'][0].size()[1] < max(1, 2)")
    assert condition.text(["x"]) == "(2 + x.size(0)) * -x.size(1) < max(1, 2)"
