"""A quantized model through files: its own, and ONNX."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from halfstep.errors import ArgumentError, FileFormatError
from halfstep.flows import ptq
from halfstep.flows.coverage import Coverage
from halfstep.flows.example import example_of
from halfstep.flows.ship import export_onnx, load, save
from halfstep.flows.summary import Summary
from halfstep.formats import open_model
from halfstep.spec.recipes import static_int8, weight_only


class Net(nn.Module):
    """Two inputs, one of them integers, and a dict of results."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """(N, 8) floats and (N,) numbers to (N, 4)."""
        return {"y": self.fc(x + self.words(ids))}


BATCH = {"x": torch.randn(16, 8), "ids": torch.arange(16) % 10}


def test_a_result_comes_back_with_what_is_known_of_it(tmp_path: Path) -> None:
    """The same results, the recipe, the coverage and the summary."""
    result = ptq.quantize(Net(), [BATCH], static_int8(), progress=False)
    save(result, tmp_path / "net.halfstep")
    loaded = load(tmp_path / "net.halfstep")
    assert torch.equal(loaded(**BATCH)["y"], result.model(**BATCH)["y"])
    opened = open_model(tmp_path / "net.halfstep")
    assert opened.recipe == result.recipe
    assert opened.calibrated == 1
    assert str(Coverage.from_dict(json.loads(opened.extra["coverage"]))) == str(result.coverage)
    assert str(Summary.from_dict(json.loads(opened.extra["summary"]))) == str(result.summary)


def test_a_model_comes_back_in_its_class_and_on_an_engine(tmp_path: Path) -> None:
    """With the float model; a bare model is saved as well as a result."""
    model = ptq.quantize(Net(), [BATCH], progress=False).model
    save(model, tmp_path / "net.halfstep")
    loaded = load(tmp_path / "net.halfstep", model=Net(), engine="reference")
    assert type(loaded) is Net
    assert vars(loaded)["forward"].engine.name == "reference"
    assert torch.equal(loaded(**BATCH)["y"], model(**BATCH)["y"])


def test_onnx_computes_the_same(tmp_path: Path) -> None:
    """In ONNX Runtime, for another batch size, by the names of the arguments."""
    runtime = pytest.importorskip("onnxruntime")
    result = ptq.quantize(Net(), [BATCH], progress=False)
    export_onnx(result, tmp_path / "net.onnx")
    session = runtime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    part = {name: value[:5] for name, value in BATCH.items()}
    (found,) = session.run(None, {name: value.numpy() for name, value in part.items()})
    expected = result.model(**part)["y"]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=0.05)


def test_what_is_no_whole_model_is_not_exported(tmp_path: Path) -> None:
    """Layers quantized one by one; a float model; and no file is left."""
    pytest.importorskip("onnx")
    parts = ptq.quantize(Net(), None, weight_only())
    with pytest.raises(ArgumentError, match=r"only parts of this Net are programs"):
        export_onnx(parts, tmp_path / "net.onnx")
    with pytest.raises(ArgumentError, match="is not quantized"):
        export_onnx(Net(), tmp_path / "net.onnx")
    assert not [*tmp_path.iterdir()]


def test_a_file_of_tensors_is_no_model(tmp_path: Path) -> None:
    """It says what it is."""
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(FileFormatError, match=r"w\.pt"):
        load(tmp_path / "w.pt")


def test_an_example_is_made_from_what_was_seen() -> None:
    """The shapes of calibration with one sample, or those given; integers are zeros."""
    model = ptq.quantize(Net(), [BATCH], progress=False).model
    example = example_of(model)
    assert {name: (tuple(v.shape), v.dtype) for name, v in example.items()} == {
        "x": ((1, 8), torch.float32),
        "ids": ((1,), torch.int64),
    }
    assert model(**example_of(model, [(3, 8), (3,)]))["y"].shape == (3, 4)
    with pytest.raises(ArgumentError, match=r"takes 2 tensors \(x, ids\), and 1 shapes"):
        example_of(model, [(3, 8)])
    with pytest.raises(ArgumentError, match="only parts"):
        example_of(ptq.quantize(Net(), None, weight_only()).model)


def test_an_example_lies_in_the_range_that_was_seen() -> None:
    """Where the input is quantized; so its outputs say something of the model."""
    x = torch.rand(64, 8) * 3 - 1
    model = ptq.quantize(nn.Linear(8, 4), x, progress=False).model
    drawn = example_of(model, [(500, 8)])["input"]
    low, high = x.aminmax()
    assert 1.02 * low < drawn.min() < 0.9 * low
    assert 0.9 * high < drawn.max() < 1.02 * high
