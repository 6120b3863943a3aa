"""The examples run, and print what their comments say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(set(EXAMPLES.glob("*.py")) - {EXAMPLES / "demo.py"})
SHOWN = re.compile(r"# -> (.*)$", re.MULTILINE)


def first_difference(shown: list[str], printed: str) -> str | None:
    """The first announced line that the output lacks, in order; None when all are there."""
    at = 0
    for line in shown:
        found = printed.find(line, at)
        if found < 0:
            return line
        at = found + len(line)
    return None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_prints_what_its_comments_say(script: Path) -> None:
    """What a reader of an example sees beside the code is what the code prints."""
    shown = SHOWN.findall(script.read_text(encoding="utf-8"))
    assert shown, f"{script.name} announces nothing"
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert first_difference(shown, run.stdout) is None, run.stdout


def test_a_wrong_comment_is_caught() -> None:
    """An example that prints something else fails."""
    assert first_difference(["a", "b"], "a\nb\n") is None
    assert first_difference(["b", "a"], "a\nb\n") == "a"


@pytest.mark.models
def test_demo_quantizes_a_real_checkpoint() -> None:
    """`make demo` on EfficientNet-Lite0: every weight within half a step, shown as a table."""
    script = EXAMPLES / "demo.py"
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert re.search(r"_conv_stem.*int8.*per.channel", run.stdout)
    largest = re.search(r"largest error of all: ([0-9.]+) steps", run.stdout)
    assert largest is not None
    assert float(largest[1]) <= 0.5001
