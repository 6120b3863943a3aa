"""halfstep explain: a quantized file beside its float model; ways to be wrong are one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from halfstep.formats import save_tensors
from tests.cli.commands import run, write_inputs

MODULE = "net_to_explain"
Halfstep = Callable[..., tuple[int, str, str]]


@pytest.fixture
def halfstep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Halfstep:
    """The command, run in a folder with code, data, and a model that was quantized."""
    write_inputs(tmp_path, MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, MODULE, raising=False)

    def command(*arguments: object) -> tuple[int, str, str]:
        return run(monkeypatch, capsys, *arguments)

    quantized = ("quantize", f"{MODULE}:net", "--data", "x.npy", "-o", "net.halfstep")
    assert command(*quantized)[0] == 0
    return command


def test_a_file_is_explained(halfstep: Halfstep) -> None:
    """The table, worst first, with the recipe of the file; nothing is written."""
    before = sorted(Path.cwd().iterdir())
    order = ("explain", f"{MODULE}:net", "net.halfstep", "--data", "x.npy", "--untimed")
    code, out, err = halfstep(*order)
    assert (code, err) == (0, "")
    assert out.startswith("Sequential, recipe static_int8, engine torch, measured on 42 samples")
    assert "output SQNR" in out
    assert "conv2d" in out
    assert max(map(len, out.splitlines())) <= 100
    assert {path.name for path in Path.cwd().iterdir()} - {path.name for path in before} <= {
        "__pycache__"
    }


def test_data_and_page_are_written(halfstep: Halfstep) -> None:
    """JSON for machines, and a page; the last lines say where."""
    pytest.importorskip("jinja2")
    order = ("explain", "net.pt2", "net.halfstep", "--data", "x.npy", "--max-batches", 1)
    code, out, err = halfstep(*order, "--json", "a.json", "--html", "a.html")
    assert (code, err) == (0, "")
    assert "written: a.html (" in out
    assert "written: a.json (" in out
    found = json.loads(Path("a.json").read_text(encoding="utf-8"))
    assert [layer["op"] for layer in found["layers"]] == ["conv2d", "flatten", "linear"]
    assert found["samples"] == 16
    assert found["layers"][0]["ms"] > 0
    assert Path("a.html").read_text(encoding="utf-8").startswith("<!")


def test_the_fewest_layers_to_keep_are_named(halfstep: Halfstep) -> None:
    """--min-sqnr is measured with the recipe of the file."""
    order = ("explain", f"{MODULE}:net", "net.halfstep", "--data", "x.npy", "--untimed")
    code, out, _ = halfstep(*order, "--min-sqnr", 60)
    assert code == 0
    assert "60 dB" in out


def test_a_model_of_which_parts_are_programs(halfstep: Halfstep) -> None:
    """Dynamic layers were quantized without data, and their file needs the float model."""
    order = ("quantize", f"{MODULE}:net", "--recipe", "dynamic_int8", "-o", "parts.halfstep")
    assert halfstep(*order)[0] == 0
    explained = ("explain", f"{MODULE}:net", "parts.halfstep", "--data", "x.npy", "--untimed")
    code, out, err = halfstep(*explained)
    assert (code, err) == (0, "")
    assert "recipe dynamic_int8" in out


def test_another_model_is_refused(halfstep: Halfstep) -> None:
    """One line names the first difference."""
    Path("other_to_explain.py").write_text(
        "from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Conv2d(1, 4, 3), "
        "nn.Tanh(), nn.Flatten(), nn.Linear(144, 64))\n",
        encoding="utf-8",
    )
    order = ("explain", "other_to_explain:net", "net.halfstep", "--data", "x.npy", "--untimed")
    code, out, err = halfstep(*order)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "the models do not match" in err
    assert "aten.tanh" in err


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("net.pt2", "none.halfstep", "--data", "x.npy"), 1, "none.halfstep: there is no such"),
        (("none.pt2", "net.halfstep", "--data", "x.npy"), 1, "none.pt2: there is no such file"),
        (("net.pt2", "w.safetensors", "--data", "x.npy"), 1, "w.safetensors"),
        (("net.pt2", "net.halfstep", "--data", "x.txt"), 1, "'x.txt' names no data"),
        (("net.pt2", "net.halfstep", "--data", "x.npy", "--json", "x.npy"), 2, "is read by this"),
        (("net.pt2", "net.halfstep", "--data", "x.npy", "--html", "a", "--json", "a"), 2, "twice"),
    ],
)
def test_what_goes_wrong_is_one_line(
    halfstep: Halfstep, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    """No traceback, and no file is left behind."""
    save_tensors({"w": torch.ones(2)}, "w.safetensors")
    found = halfstep("explain", *arguments)
    assert (found[0], found[1], found[2].count("\n")) == (code, "", 1)
    assert reason in found[2]
