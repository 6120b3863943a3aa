"""The documents do not lie: their examples run, and what they point to exists.

`conftest.py` turns each `python` and `console` block into a test of its own; here are the tests of
that machinery, and of everything else that a document can get wrong.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from sybil import Example

from tests.console_blocks import difference, evaluate_console_block, run
from tests.house.repository import PACKAGE, ROOT, documents

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")
NAMED = re.compile(r"`((?:\.?[\w-]+/)+[\w.-]*|[\w-]+\.(?:md|toml|txt|py))`")
# Folders whose mention in a document means a place in this repository.
OURS = {".ci", "benchmarks", "csrc", "docs", "examples", "src", "tests"}
EXECUTED = {"console", "python"}
SHOWN = {"text", "json", "toml", "cpp"}


def example(block: str) -> Example:
    """A block as the evaluator gets it."""
    stand_in: Example = SimpleNamespace(parsed=block)  # type: ignore[assignment]  # duck-typed
    return stand_in


def named_paths(document: Path) -> list[str]:
    """The paths that a document links to, or names in back quotes."""
    text = document.read_text(encoding="utf-8")
    named = [name for name in NAMED.findall(text) if name.split("/")[0] in OURS]
    return LINK.findall(text) + named


@pytest.mark.parametrize("document", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_named_in_a_document_exists(document: Path) -> None:
    """A reader who follows a path arrives."""
    missing = [
        name
        for name in named_paths(document)
        if not (document.parent / name).exists() and not (ROOT / name).exists()
    ]
    assert not missing, f"{document.name} names {missing}"


@pytest.mark.parametrize("document", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_says_what_it_is(document: Path) -> None:
    """A block is executed (python, console) or plainly not code of ours (text, json, ...)."""
    text = document.read_text(encoding="utf-8")
    languages = re.findall(r"^ *```(.*)$", text, flags=re.MULTILINE)[::2]
    assert set(languages) <= EXECUTED | SHOWN


def test_every_docstring_example_is_collected() -> None:
    """Doctests run for the whole package: pytest is told to collect them from `src`."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"--doctest-modules"' in settings
    assert re.search(r'^testpaths = \[.*"src".*\]$', settings, flags=re.MULTILINE)
    assert any(">>>" in path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))


def test_console_block_with_the_right_output_passes() -> None:
    """Output is compared but for white space and what an ellipsis leaves out."""
    block = "$ python -c \"print('one', 2.0, 'three')\"\none   ... three\n"
    assert evaluate_console_block(example(block)) is None


def test_console_block_with_the_wrong_output_fails() -> None:
    """A document that shows something else than what is printed is a failing test."""
    block = '$ python -c "print(1)"\n2\n'
    report = evaluate_console_block(example(block))
    assert report is not None
    assert "Expected:" in report
    assert "Got:" in report


def test_set_up_commands_are_shown_only() -> None:
    """`make test` in a document does not run the suite inside the suite."""
    assert evaluate_console_block(example("$ make test\n$ pip install halfstep\n")) is None


def test_unknown_program_in_a_console_block_fails() -> None:
    """No command of a document is skipped silently."""
    with pytest.raises(AssertionError, match="Start it with one of halfstep, python"):
        run("curl example.org")


def test_difference_names_the_command() -> None:
    """The report says which command of the block printed something else."""
    assert "$ halfstep info" in difference("halfstep info", "a", "b")
