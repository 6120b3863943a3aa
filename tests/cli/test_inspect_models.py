"""halfstep inspect on models: what the file is in a few lines, then its tensors."""

import json
import sys
import warnings
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from halfstep.cli.app import main
from halfstep.formats import save_model
from tests.formats.make_model_golden import GOLDEN
from tests.formats.stored_models import Net, by_hand


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``halfstep inspect``, run in this process."""
    monkeypatch.setattr(sys, "argv", ["halfstep", "inspect", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_a_model_says_how_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Class, recipe, calibration, engine, programs and versions stand above its tensors."""
    path = tmp_path / "net.halfstep"
    save_model(path, by_hand(Net(), torch.randn(2, 1, 8, 8)), calibrated=16)
    code, out, err = run(monkeypatch, capsys, path)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[:3] == [
        f"{path}: halfstep model",
        "  Net, quantized, calibrated on 16 batches, for the engine reference",
        "  programs: the whole model (10 steps)",
    ]
    assert lines[3].startswith("  written by Halfstep ")
    row = next(line for line in lines if line.startswith("conv1.weight "))
    assert "int8" in row
    assert "per channel, axis 0" in row


def test_json_tells_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines are a list."""
    code, out, _ = run(monkeypatch, capsys, "--json", GOLDEN / "odd.halfstep")
    shown = json.loads(out)
    assert (code, shown["kind"]) == (0, "halfstep model")
    assert shown["about"][1] == "programs: first (1 steps), second (1 steps)"


def test_a_damaged_model_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the file and what to do, and exit code 2."""
    path = tmp_path / "bad.halfstep"
    data = (GOLDEN / "net.halfstep").read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, out, err = run(monkeypatch, capsys, path)
    assert (code, out) == (2, "")
    assert err.startswith(f"halfstep: {path}: corrupt: its bytes are not those that were written")
    assert err.count("\n") == 1


def test_an_onnx_model_shows_its_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A weight behind DequantizeLinear is one row; what quantizes is counted."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    constants = [
        helper.make_tensor("w", TensorProto.INT8, (2, 2), [1, -2, 3, 127]),
        helper.make_tensor("w_scale", TensorProto.FLOAT, (2,), [0.5, 0.25]),
    ]
    node = helper.make_node("DequantizeLinear", ["w", "w_scale"], ["x"], axis=0)
    opsets = [helper.make_opsetid("", 13)]
    graph = helper.make_graph([node], "g", [], [x], constants)
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")
    code, out, err = run(monkeypatch, capsys, tmp_path / "m.onnx", "--tensor", "w")
    assert (code, err) == (0, "")
    assert "  nodes: 1, of them 1 DequantizeLinear" in out
    assert "  per channel, axis 0; stands for float32" in out
    assert "w_scale" not in out


def test_an_exported_program_shows_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A .pt2 file of torch.export, float here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
        torch.export.save(program, tmp_path / "m.pt2")
    code, out, err = run(monkeypatch, capsys, tmp_path / "m.pt2")
    assert (code, err) == (0, "")
    assert (
        f"{tmp_path / 'm.pt2'}: torch.export\n  model: nodes: 1, of them none that quantizes" in out
    )
    assert "weight   (3, 4)   float32" in out
