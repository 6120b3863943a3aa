"""halfstep bench and halfstep export, on files of halfstep quantize."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from halfstep.engines import installed
from halfstep.flows import ptq
from halfstep.flows.ship import save
from halfstep.spec.recipes import weight_only
from tests.cli.commands import net, run, write_inputs

Halfstep = Callable[..., tuple[int, str, str]]
MODULE = "net_of_another_test"


@pytest.fixture
def halfstep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Halfstep:
    """The command, in a folder with a quantized model, whole and in parts."""
    write_inputs(tmp_path, MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    save(ptq.quantize(net(), torch.randn(16, 1, 8, 8)), "whole.halfstep")
    save(ptq.quantize(net(), None, weight_only()), "parts.halfstep")
    return lambda *arguments: run(monkeypatch, capsys, *arguments)


def test_every_installed_engine_is_measured(halfstep: Halfstep) -> None:
    """A row for each, or its reason; by default one sample of the shape seen in calibration."""
    code, out, err = halfstep("bench", "whole.halfstep")
    assert (code, err) == (0, "")
    assert {line.split()[0] for line in out.splitlines()[1:-1]} >= {*installed()}
    assert "medians of calls" in out


def test_json_is_for_machines(halfstep: Halfstep) -> None:
    """Milliseconds of the engines asked for, and of the float model; the threads are set."""
    order = ("bench", "whole.halfstep", "--engine", "torch", "--threads", 1, "--json")
    code, out, _ = halfstep(*order, "--float", "net.pt2", "--shape", "4,1,8,8")
    found = json.loads(out)
    assert (code, found["threads"], found["against"]) == (0, 1, "float")
    rows = {row["engine"]: row for row in found["engines"]}
    assert rows.keys() == {"float", "torch"}
    assert all(row["ms"] > 0 for row in rows.values())
    assert rows["torch"]["sqnr"] > 10  # of one random sample


def test_data_is_run_on(halfstep: Halfstep) -> None:
    """The first batch of a file."""
    assert halfstep("bench", "whole.halfstep", "--data", "x.npy", "--engine", "torch")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("--shape", "1,a"), 2, "write numbers with commas"),
        (("--shape", "1,1,8,8", "--data", "x.npy"), 2, "leave out --shape"),
        (("--shape", "1,1,8,8", "--shape", "2"), 1, "takes 1 tensors (input), and 2 shapes"),
        (("--shape", "1,3,8,8", "--engine", "torch"), 1, "no engine runs this model here: torch:"),
        (("--engine", "fpga"), 1, "engine='fpga' is not an engine"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    halfstep: Halfstep, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    """The reason on stderr."""
    found, out, err = halfstep("bench", "whole.halfstep", *arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert reason in err


def test_parts_need_the_code_between_them(halfstep: Halfstep) -> None:
    """It is asked for, and given as the float model."""
    code, _, err = halfstep("bench", "parts.halfstep")
    assert code == 1
    assert "holds parts of a Sequential (0, 3)" in err
    assert "--float" in err
    order = ("bench", "parts.halfstep", "--float", f"{MODULE}:net", "--data", "x.npy")
    code, out, _ = halfstep(*order, "--engine", "torch")
    assert code == 0
    assert "SQNR is against float" in out


def test_a_model_becomes_onnx(halfstep: Halfstep) -> None:
    """The lowest opset that serves, or the one that is asked for."""
    onnx = pytest.importorskip("onnx")
    assert halfstep("export", "whole.halfstep", "-o", "a.onnx")[:2][0] == 0
    code, out, err = halfstep("export", "whole.halfstep", "-o", "b.onnx", "--opset", 21)
    assert (code, err) == (0, "")
    assert out.startswith("written: b.onnx (")
    versions = [onnx.load(name).opset_import[0].version for name in ("a.onnx", "b.onnx")]
    assert versions == [13, 21]


def test_what_cannot_be_exported_is_one_line(halfstep: Halfstep) -> None:
    """Files that are none, parts, and the input as output."""
    save_here = ("-o", "a.onnx")
    assert "weights.pt: " in halfstep("export", "weights.pt", *save_here)[2]
    assert "holds parts" in halfstep("export", "parts.halfstep", *save_here)[2]
    code, _, err = halfstep("export", "whole.halfstep", "-o", "whole.halfstep")
    assert code == 2
    assert "is read by this command" in err
    assert not Path("a.onnx").exists()
