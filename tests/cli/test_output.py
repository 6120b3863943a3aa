"""Where output goes: full disks, closed pipes, many tensors, and several files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from halfstep.formats import save_tensors
from halfstep.spec import int8
from halfstep.tensor import quantize
from tests.cli.test_inspection import run

PROGRAM = [sys.executable, "-c", "from halfstep.cli import main; main()"]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """2000 small quantized tensors: more output than a pipe holds."""
    q = quantize(torch.randn(8, 8), int8)
    save_tensors({f"layer.{i}": q for i in range(2000)}, tmp_path / "many.safetensors")
    return tmp_path / "many.safetensors"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [[], ["--json"], ["--tensor", "*"]])
def test_a_full_disk_is_one_line(many: Path, arguments: list[str]) -> None:
    """The reason on stderr, exit code 1, and no word of Python's at exit."""
    for command in (["inspect", str(many), *arguments], ["info"], ["--version"]):
        with Path("/dev/full").open("w") as full:
            found = subprocess.run(
                [*PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert found.stderr == "halfstep: cannot write output: No space left on device\n"
        assert found.returncode == 1


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_closed_pipe_is_quiet(many: Path, arguments: list[str]) -> None:
    """``head`` has seen enough: no message, exit code 1."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    found = subprocess.run(
        [*PROGRAM, "inspect", str(many), *arguments],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert (found.returncode, found.stderr) == (1, "")


def test_many_small_tensors_have_a_row_each(
    many: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row for each, however many there are."""
    code, out, _ = run(monkeypatch, capsys, many)
    assert code == 0
    assert len(out.splitlines()) == 2000 + 4


def test_a_long_name_is_folded_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is wider than the terminal, nothing of the name is lost."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    torch.save({"n" * 90: torch.ones(1)}, tmp_path / "x.pt")
    _, out, _ = run(monkeypatch, capsys, tmp_path / "x.pt")
    rows = [line for line in out.splitlines() if line.startswith("nn")]
    assert len(rows) > 1
    assert all(len(row) <= 60 for row in rows)
    assert sum(row.split()[0].count("n") for row in rows) == 90


def test_the_order_of_the_tensors_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they were saved, in the table too."""
    save_tensors({"z": torch.ones(1), "a": torch.ones(1)}, tmp_path / "x.safetensors")
    _, out, _ = run(monkeypatch, capsys, tmp_path / "x.safetensors")
    assert [line[0] for line in out.splitlines()[3:5]] == ["z", "a"]


def test_names_that_no_encoding_has_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a character in a checkpoint is escaped."""
    torch.save({"w\ud800": torch.ones(1), "other\ud800": 3}, tmp_path / "x.pt")
    code, out, _ = run(monkeypatch, capsys, tmp_path / "x.pt")
    assert code == 0
    assert "w\\ud800" in out
    assert "not tensors: other\\ud800" in out


@pytest.mark.parametrize("arguments", [[], ["--tensor", "*"], ["--json"]])
def test_an_ascii_terminal_gets_ascii(tmp_path: Path, arguments: list[str]) -> None:
    """Rules and bars in ASCII, and names escaped."""
    torch.save({"größe": quantize(torch.randn(4, 4), int8)}, tmp_path / "x.pt")
    found = subprocess.run(
        [*PROGRAM, "inspect", str(tmp_path / "x.pt"), *arguments],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, b"")
    assert "gr\\xf6\\xdfe" in found.stdout.decode("ascii").replace("u00", "x")


def test_several_files_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each under its name; a bad one is a line on stderr and decides the exit code."""
    first, second, missing = (tmp_path / f"{name}.pt" for name in "abc")
    for path in (first, second):
        torch.save({path.stem: torch.ones(1)}, path)
    code, out, err = run(monkeypatch, capsys, first, missing, second)
    headings = [line for line in out.splitlines() if line.endswith(": torch.save")]
    assert (code, headings) == (2, [f"{first}: torch.save", f"{second}: torch.save"])
    assert err.startswith(f"halfstep: {missing}: there is no such file")
    code, out, _ = run(monkeypatch, capsys, first, second, "--json")
    assert (code, [entry["file"] for entry in json.loads(out)]) == (0, [str(first), str(second)])
    code, out, _ = run(monkeypatch, capsys, first, second, "--tensor", "?")
    assert [line for line in out.splitlines() if line.endswith(": torch.save")] == headings
