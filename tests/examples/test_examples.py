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
@pytest.mark.slow
def test_demo_runs_a_real_network_in_integers(tmp_path: Path) -> None:
    """`make demo` on EfficientNet-Lite0: as right as in float on every engine, and its files."""
    command = [sys.executable, "-W", "error", EXAMPLES / "demo.py", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "engine torch: equal to the reference in all" in run.stdout
    rows = re.findall(r"^int8 (\w+) .* (\d+)/20 +(\d+)/20 +([0-9.]+) dB$", run.stdout, re.MULTILINE)
    assert "torch" in {engine for engine, *_ in rows}
    for _, right, same, sqnr in rows:
        assert int(right) >= 17
        assert int(same) >= 19
        assert float(sqnr) >= 18
    for name in ("float32.safetensors", "int8.halfstep", "report.html"):
        assert (tmp_path / name).exists()
        assert name in run.stdout
