"""The examples run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.repository import ROOT

# The demo takes a minute, and tests/examples reads what it prints.
EXAMPLES = sorted({*(ROOT / "examples").glob("*.py")} - {ROOT / "examples" / "demo.py"})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    """An example is a program: it ends well, prints something, and warns of nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", example],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
