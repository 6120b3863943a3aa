"""halfstep quantize: models, weights, data and recipes by their names, and ways to be wrong."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from halfstep.flows.ship import load
from halfstep.formats import load_tensors, save_tensors
from halfstep.numerics.metrics import sqnr_of
from halfstep.spec import Rule
from halfstep.spec.recipes import dynamic_int8
from halfstep.tensor import QTensor
from tests.cli.commands import net, run, write_inputs

MODULE = "net_of_a_test"
Halfstep = Callable[..., tuple[int, str, str]]


@pytest.fixture
def halfstep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Halfstep:
    """The command, run in a folder with code, programs and data."""
    write_inputs(tmp_path, MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return lambda *arguments: run(monkeypatch, capsys, *arguments)


def sqnr(path: str) -> float:
    """How near the model of a file is to the float one, in dB."""
    x = torch.randn(5, 1, 8, 8)
    with torch.no_grad():
        expected, found = net()(x), load(path)(x)
    noise = (expected - found).double().square().sum()
    return sqnr_of(float(expected.double().square().sum()), float(noise))


def test_an_exported_program_is_quantized_on_data(halfstep: Halfstep) -> None:
    """The model file computes what the model computes, and the summary says how well."""
    code, out, err = halfstep("quantize", "net.pt2", "--data", "x.npy", "-o", "net.halfstep")
    assert (code, err) == (0, "")
    assert "recipe: static_int8 (chosen since batches were given)" in out
    assert "calibrated on: 3 batches" in out
    assert "engine torch: equal to the reference" in out
    assert "written: net.halfstep (" in out
    assert sqnr("net.halfstep") > 30


def test_a_program_of_fixed_size_gets_batches_of_its_size(halfstep: Halfstep) -> None:
    """It was exported with 4 samples: 42 are 10 batches, and another size is refused."""
    order = ("quantize", "fixed.pt2", "--data", "x.npy", "-o", "net.halfstep")
    code, out, _ = halfstep(*order)
    assert code == 0
    assert "calibrated on: 10 batches" in out
    code, _, err = halfstep(*order, "--batch-size", 8)
    assert code == 1
    assert "exported with a fixed batch of 4, not 8" in err


@pytest.mark.parametrize("recipe", ["static_int8", "dynamic_int8", "weight_only"])
def test_code_of_the_current_folder_is_quantized(halfstep: Halfstep, recipe: str) -> None:
    """A factory, weights read without running code, and batches from code."""
    data = ("--data", f"{MODULE}:batches", "--max-batches", 2)
    order = ("quantize", f"{MODULE}:net", "--weights", "weights.pt", "--recipe", recipe, *data)
    code, out, err = halfstep(*order, "-o", "net.halfstep")
    assert (code, err) == (0, "")
    assert f"recipe: {recipe}" in out
    assert sqnr("net.halfstep") > 20  # on other data than the eight samples


def test_a_recipe_is_read_from_json(halfstep: Halfstep) -> None:
    """One's own rules, as Recipe.to_json writes them; a bad file is named."""
    recipe = dynamic_int8().with_rules(Rule("0", keep_float=True))
    Path("mine.json").write_text(recipe.to_json(), encoding="utf-8")
    order = ("quantize", "net.pt2", "-o", "net.halfstep", "--table", "--recipe")
    code, out, _ = halfstep(*order, "mine.json")
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert code == 0
    assert "float" in rows["0"]
    assert "dynamic int8" in rows["3"]
    Path("bad.json").write_text("{", encoding="utf-8")
    assert halfstep(*order, "bad.json")[2].startswith("halfstep: bad.json: the recipe is no JSON")
    assert halfstep(*order, "none.json")[2] == "halfstep: none.json: there is no such file\n"


def test_layers_stay_float_and_are_listed(halfstep: Halfstep) -> None:
    """--keep-float takes globs; what stays is said, with its bytes."""
    order = ("quantize", "net.pt2", "-o", "net.halfstep", "--keep-float")
    code, out, _ = halfstep(*order, "3")
    assert code == 0
    assert "float: 3 (37.1 kB): " in out
    code, _, err = halfstep(*order, "nothing*")
    assert code == 1
    assert "nothing*" in err


def test_layers_stay_float_until_a_target_is_reached(halfstep: Halfstep) -> None:
    """--min-sqnr says which are kept, what they bring and cost; it needs data."""
    order = ("quantize", "net.pt2", "-o", "net.halfstep", "--min-sqnr", 60)
    code, out, err = halfstep(*order, "--data", "x.npy")
    assert (code, err) == (0, "")
    assert "target: an output SQNR of at least 60 dB, reached with " in out
    code, _, err = halfstep(*order)
    assert code == 2
    assert "--min-sqnr is measured on data: give --data" in err


def test_an_onnx_file_is_written_as_well(halfstep: Halfstep) -> None:
    """It passes ONNX's checker and runs."""
    runtime = pytest.importorskip("onnxruntime")
    order = ("quantize", "net.pt2", "--data", "x.npy", "-o", "net.halfstep", "--onnx", "net.onnx")
    assert halfstep(*order)[0] == 0
    session = runtime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    x = torch.randn(3, 1, 8, 8)
    (name,) = (given.name for given in session.get_inputs())
    (found,) = session.run(None, {name: x.numpy()})
    expected = load("net.halfstep")(x)
    assert (torch.from_numpy(found) - expected).abs().max() < 0.1 * expected.abs().max()


def test_weights_are_quantized_without_code(halfstep: Halfstep) -> None:
    """A safetensors file to 4 bits in groups; what does not fit is kept and listed."""
    save_tensors({"w": torch.randn(8, 64), "odd": torch.randn(8, 5)}, "a.safetensors")
    order = ("quantize", "a.safetensors", "-o", "b.safetensors", "--weight-only", "int4")
    code, out, err = halfstep(*order, "--group-size", 32, "--table")
    assert (code, err) == (0, "")
    assert "odd: kept" in out
    assert "1 of 2 tensors quantized" in out
    found = load_tensors("b.safetensors")
    assert isinstance(found["w"], QTensor)
    assert str(found["w"].spec.dtype) == "int4"


def test_a_file_of_weights_none_of_which_fits_says_why(halfstep: Halfstep) -> None:
    """Without being asked for a table: what came to nothing must not look like success."""
    save_tensors({"w": torch.randn(4, 64)}, "a.safetensors")
    order = ("quantize", "a.safetensors", "-o", "b.safetensors", "--weight-only", "int4")
    _, out, _ = halfstep(*order, "--group-size", 48)
    assert "w: kept, group size 48 does not divide axis 1" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("net.pt2", "-o", "net.pt2"), "net.pt2 is read by this command"),
        (("net.pt2", "--data", "x.npy", "-o", "x.npy"), "x.npy is read by this command"),
        (("net.pt2", "-o", "a", "--onnx", "a"), "a would be written twice"),
        (("net.pt2", "-o", "none/a"), "in a folder that does not exist"),
        (("net.pt2", "-o", "."), ". is a folder"),
        (("net.pt2", "-o", "a", "--recipe", "static_int8"), "give --data"),
        (("net.pt2", "-o", "a", "--recipe", "int3"), "allowed are static_int8, dynamic_int8"),
        (("net.pt2", "-o", "a", "--group-size", "32"), "--group-size goes with --weight-only"),
        (
            ("net.pt2", "-o", "a", "--weight-only", "int4", "--recipe", "dynamic_int8"),
            "leave out --recipe",
        ),
        (("a.safetensors", "-o", "b"), "give --weight-only int4 or int8"),
        (("a.safetensors", "-o", "b", "--weight-only", "int4", "--data", "x.npy"), "--data"),
    ],
)
def test_options_that_make_no_sense_are_exit_code_2(
    halfstep: Halfstep, arguments: tuple[str, ...], reason: str
) -> None:
    """One line on stderr, and nothing is written."""
    before = sorted(Path.cwd().iterdir())
    code, out, err = halfstep("quantize", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("none.pt2",), "none.pt2: there is no such file"),
        (("weights.pt",), "names no model: give a .pt2 file"),
        ((f"{MODULE}:wrong",), f"{MODULE}:wrong failed: RuntimeError: no luck"),
        ((f"{MODULE}:number",), f"{MODULE}:number gives a int"),
        ((f"{MODULE}:none",), f"{MODULE} has no none"),
        (("no_such_module:x",), "importing no_such_module failed: ModuleNotFoundError"),
        (("net.pt2", "--data", "xy.npz"), "save the arguments alone, under their names"),
        (("net.pt2", "--data", "x.txt"), "'x.txt' names no data"),
        (("net.pt2", "--data", "none.npy"), "none.npy: there is no such file"),
        (("net.pt2", "--data", f"{MODULE}:number"), "gives a int: it has to give batches"),
        (("net.pt2", "--weight-only", "int99"), "'int99' is not an integer format"),
        (("net.pt2", "--engine", "fpga"), "fpga"),
        ((f"{MODULE}:net", "--weights", "x.pt"), "x.pt"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(
    halfstep: Halfstep, arguments: tuple[str, ...], reason: str
) -> None:
    """No traceback, and no file is left behind."""
    code, out, err = halfstep("quantize", *arguments, "-o", "a.halfstep")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert reason in err
    assert not Path("a.halfstep").exists()


def test_a_warning_is_one_line(halfstep: Halfstep) -> None:
    """What Halfstep warns of is told, and the work goes on."""
    content = {"input": torch.randn(8, 1, 8, 8), "odd": torch.eye(2).to_sparse()}
    torch.save(content, "x.pt")
    code, _, err = halfstep("quantize", "net.pt2", "--data", "x.pt", "-o", "net.halfstep")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("halfstep: warning: x.pt: tensor 'odd' is left out: it is sparse")


def test_a_file_that_is_no_program_is_one_line(halfstep: Halfstep) -> None:
    """Whatever torch says of it."""
    Path("bad.pt2").write_bytes(b"PK nonsense")
    code, _, err = halfstep("quantize", "bad.pt2", "-o", "a.halfstep")
    assert (code, err.count("\n")) == (1, 1)
    assert "bad.pt2: torch.export.load fails" in err


def test_the_program_quantizes(halfstep: Halfstep) -> None:
    """As a process of its own, with nothing on stderr: that is no terminal, which gets no bar."""
    program = [sys.executable, "-c", "from halfstep.cli import main; main()"]
    order = [*program, "quantize", f"{MODULE}:net", "--data", "x.npy", "-o", "net.halfstep"]
    done = subprocess.run(order, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "written: net.halfstep" in done.stdout
    inspected = [*program, "inspect", "net.halfstep", "--json"]
    shown = subprocess.run(inspected, capture_output=True, text=True, check=True)
    assert "0.weight" in {tensor["name"] for tensor in json.loads(shown.stdout)["tensors"]}
