"""Names and globs choose tensors; a pattern that matches nothing says what is near."""

import pytest

from halfstep.errors import ArgumentError
from halfstep.formats.selection import select

NAMES = ["conv1.weight", "conv1.bias", "fc.weight", "odd[0]"]


def test_patterns_choose_in_file_order() -> None:
    """Names, globs, both; a name with brackets is a name first."""
    assert select(NAMES, []) == NAMES
    assert select(NAMES, ["fc.weight", "conv?.bias"]) == ["conv1.bias", "fc.weight"]
    assert select(NAMES, ["odd[0]"]) == ["odd[0]"]


@pytest.mark.parametrize(
    ("pattern", "names", "text"),
    [
        ("conv1.wieght", NAMES, "the nearest names are conv1.weight"),
        ("zzz", NAMES, "the file holds conv1.weight, conv1.bias, fc.weight and more"),
        ("zzz", ["tensor"], "the file holds tensor$"),
        ("x", [], "the file holds no tensors"),
    ],
)
def test_no_match_says_what_is_near(pattern: str, names: list[str], text: str) -> None:
    """The nearest names, else a few of them, else that there are none."""
    with pytest.raises(ArgumentError, match=text):
        select(names, [pattern])
