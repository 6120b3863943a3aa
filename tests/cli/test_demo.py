"""halfstep demo: what it ships, what it shows, and what it leaves behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from halfstep.cli.demo.network import FILE, accuracy, load_digits
from halfstep.flows.ship import load
from halfstep.formats import load_tensors
from tests.cli.commands import run

MOST_BYTES = 300_000
MAIN = "from halfstep.cli import main; main()"


def test_what_is_shipped_is_small_and_works() -> None:
    """The trained network reads nearly all digits that it was not trained on."""
    digits = load_digits()
    assert FILE.stat().st_size < MOST_BYTES
    assert len(digits.images) == len(digits.classes) >= 300
    assert accuracy(digits.model, digits.images, digits.classes) > 0.98


def test_the_demo_shows_integers_and_what_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Integers of a weight, a table of before and after, equality, and its files."""
    code, out, err = run(monkeypatch, capsys, "demo", tmp_path / "new")
    assert (code, err) == (0, "")
    assert "integers, scale" in out
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert "358 of 360" in rows["float32"]
    assert "of 360" in rows["int8"]
    assert "dB" in rows["int8"]
    assert "equal to the reference in all" in out
    for name in ("digits.safetensors", "digits.halfstep"):
        assert str(tmp_path / "new" / name) in out
    digits = load_digits()
    assert accuracy(load(tmp_path / "new/digits.halfstep"), digits.images, digits.classes) > 0.98
    assert "fc.weight" in load_tensors(tmp_path / "new/digits.safetensors")


@pytest.mark.slow
def test_the_demo_is_a_program(tmp_path: Path) -> None:
    """It needs nothing but a folder, and warns of nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", MAIN, "demo", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
