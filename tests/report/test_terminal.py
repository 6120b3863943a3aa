"""How an explanation prints."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests import explanations

ALL = ("network", "hostile", "not_finite", "empty", "dynamic", "identical")


@pytest.mark.parametrize("name", ALL)
def test_text_fits_100_columns_and_has_no_colors(name: str) -> None:
    """A pipe and a log get plain lines that fit."""
    lines = str(getattr(explanations, name)()).splitlines()
    assert max(map(cell_len, lines)) <= 100
    assert "\x1b" not in "".join(lines)
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_printed_that_is_no_word(name: str) -> None:
    """What is not finite is said in words."""
    text = str(getattr(explanations, name)())
    assert not re.findall(r"\b(?:nan|inf|None)\b", text)


def test_the_worst_layer_is_first_and_the_rest_is_counted() -> None:
    """Fifteen layers are shown; the one that hurts stands on top, by the ends of its name."""
    lines = str(explanations.network()).splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("worst layers"))
    assert "hurts itself" in lines[head + 1]
    assert re.match(r"blocks\.1\S+\.conv0 ", lines[head + 1])
    assert lines[head + 16] == "and 65 better layers"


def test_summary_says_what_was_lost_and_gained() -> None:
    """Accuracy, metric, bytes and time are in the first lines, with where the error starts."""
    text = str(explanations.network())
    for said in (
        "measured on 16 samples in 4 batches",
        "the error is 11 % of the signal",
        "It starts at blocks.1.inverted_residual_with_a_long_name.conv0",
        "0.9 in float, 0.85 quantized (-0.05)",
        "3.77 times smaller",
        "2.35 times faster",
        "Slower than in float: ",
        "softmax_19 (no integer kernel: softmax needs exponentials in float)",
    ):
        assert said in " ".join(text.split()), said


def test_identical_models_are_called_so() -> None:
    """An identical pair has no difference, and no table of worst layers."""
    text = str(explanations.identical())
    assert "No difference: float and quantized model agree" in text
    assert "worst layers" not in text


def test_names_are_no_markup() -> None:
    """Brackets in a name are shown, not taken for a style."""
    assert "[bold]{{ 7 * 7 }}" in str(explanations.hostile())


def test_rich_prints_it_in_color() -> None:
    """On a terminal, rich shows verdicts in color."""
    file = io.StringIO()
    Console(file=file, force_terminal=True, color_system="standard", width=100).print(
        explanations.network()
    )
    assert "\x1b[1;31mhurts itself" in file.getvalue()


def test_representation_is_one_short_line() -> None:
    """An explanation in a list or a debugger does not print its integers."""
    assert repr(explanations.network()) == (
        "Explanation(EfficientNetLite0, recipe static_int8, output SQNR 18.8 dB, 80 layers, "
        "6 pieces of advice)"
    )
