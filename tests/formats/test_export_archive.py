"""Programs of torch.export: their tensors and quantized weights, without running a pickle."""

import contextlib
import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from halfstep.errors import FileFormatError
from halfstep.formats import load_tensors, open_file
from halfstep.spec import PerChannel, PerGroup, QSpec, int8
from halfstep.tensor import QTensor
from tests.strategies import THOROUGH

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed

OPS = torch.ops.quantized_decomposed


class Decomposed(nn.Module):
    """Weights in integers with scales of every granularity, and a float layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("channel", torch.randint(-127, 128, (4, 4), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(4) + 0.1)
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("whole", torch.randint(-8, 8, (4, 4), dtype=torch.int8))
        self.register_buffer("group", torch.randint(-8, 8, (4, 4), dtype=torch.int8))
        self.register_buffer("group_scales", torch.rand(4, 2) + 0.1)
        self.register_buffer("group_zeros", torch.zeros(4, 2, dtype=torch.int32))
        self.offset = torch.arange(4.0)

    def weights(self) -> dict[str, Tensor]:
        """The floats behind the integers, by the operators themselves."""
        channel = (self.channel, self.scales, self.zeros, 0, -127, 127, torch.int8)
        whole = (self.whole, 0.1, 3, -8, 7, torch.int8)
        group = (
            self.group,
            self.group_scales,
            self.group_zeros,
            -8,
            7,
            torch.int8,
            2,
            torch.float32,
        )
        return {
            "channel": OPS.dequantize_per_channel(*channel),
            "whole": OPS.dequantize_per_tensor(*whole),
            "group": OPS.dequantize_per_channel_group(*group),
        }

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) to (N, 4)."""
        x = OPS.quantize_per_tensor(x, 0.1, 3, 0, 255, torch.uint8)
        x = OPS.dequantize_per_tensor(x, 0.1, 3, 0, 255, torch.uint8)
        for weight in self.weights().values():
            x = nn.functional.linear(x, weight)
        return self.fc(x) + self.offset


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Decomposed, bytes]:
    """The model and its file."""
    torch.manual_seed(0)
    model = Decomposed()
    path = tmp_path_factory.mktemp("pt2") / "m.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(model, (torch.ones(2, 4),)), path)
    return model, path.read_bytes()


def test_weights_are_what_the_program_dequantizes(
    saved: tuple[Decomposed, bytes], tmp_path: Path
) -> None:
    """Integers, formats and floats of each, and every other tensor as it is."""
    model, data = saved
    (tmp_path / "m.pt2").write_bytes(data)
    loaded = load_tensors(tmp_path / "m.pt2")
    assert set(loaded) == {"fc.weight", "fc.bias", "channel", "whole", "group", "offset"}
    narrow = int8.within(-8, 7)
    specs = {
        "channel": QSpec(int8.within(-127, 127), PerChannel(0)),
        "whole": QSpec(narrow),
        "group": QSpec(narrow, PerGroup(1, 2)),
    }
    for name, floats in model.weights().items():
        q = loaded[name]
        assert isinstance(q, QTensor)
        assert q.spec == specs[name]
        assert torch.equal(q.int_repr(), model.get_buffer(name))
        assert torch.equal(q.dequantize(), floats)
    assert torch.equal(loaded["fc.weight"], model.fc.weight)
    assert torch.equal(loaded["offset"], model.offset)


def test_the_file_says_what_it_is(saved: tuple[Decomposed, bytes], tmp_path: Path) -> None:
    """Nodes that quantize are counted, and the version of torch is named."""
    (tmp_path / "m.pt2").write_bytes(saved[1])
    opened = open_file(tmp_path / "m.pt2")
    assert opened.kind == "torch.export"
    (line,) = opened.about
    assert "2 dequantize_per_tensor" in line
    assert line.endswith(f"torch {torch.__version__}")


def changed(data: bytes, name: str, change: Callable[[Any], Any]) -> bytes:
    """The archive with another JSON entry; None leaves it out."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(name):
                value = change(json.loads(content))
                if value is None:
                    continue
                content = json.dumps(value).encode()
            new.writestr(entry.filename, content)
    return made.getvalue()


def payload(**changes: Any) -> Callable[[Any], Any]:
    """Puts other parts into the description of fc.weight."""

    def change(plain: Any) -> Any:
        entry = plain["config"]["fc.weight"]
        for key, value in changes.items():
            (entry if key in entry else entry["tensor_meta"])[key] = value
        return plain

    return change


WEIGHTS, MODEL = "model_weights_config.json", "models/model.json"
BAD: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "elsewhere": (WEIGHTS, payload(path_name="../models/model"), "is missing"),
    "too large": (WEIGHTS, payload(sizes=[{"as_int": 1 << 20}, {"as_int": 4}]), "reaches element"),
    "negative": (WEIGHTS, payload(storage_offset={"as_int": -1}), "negative"),
    "symbolic": (WEIGHTS, payload(sizes=[{"as_expr": "s0"}, {"as_int": 4}]), "no number"),
    "no shape": (WEIGHTS, payload(sizes=None), "lacks its shape"),
    "no config": (WEIGHTS, lambda plain: [plain], "the list of its tensors"),
    "undescribed": (WEIGHTS, payload(path_name=3), "is not described"),
    "no program": (MODEL, lambda plain: None, "no program that is read"),
    "other program": (MODEL, lambda plain: {"graph": []}, "is not one of torch.export"),
    "node": (
        MODEL,
        lambda plain: plain["graph_module"]["graph"]["nodes"].append(3) or plain,
        "a node of its program",
    ),
}


@pytest.mark.parametrize(("name", "change", "text"), BAD.values(), ids=BAD)
def test_hostile_archives_are_refused(
    saved: tuple[Decomposed, bytes], tmp_path: Path, name: str, change: Any, text: str
) -> None:
    """The error names the file and what is wrong."""
    (tmp_path / "m.pt2").write_bytes(changed(saved[1], name, change))
    with pytest.raises(FileFormatError, match=rf"m\.pt2: .*{text}"):
        load_tensors(tmp_path / "m.pt2")


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.filterwarnings("ignore::halfstep.errors.HalfstepWarning")
def test_pickles_are_left_alone(saved: tuple[Decomposed, bytes], tmp_path: Path) -> None:
    """A tensor that is a pickle is named as unreadable, and nothing runs."""
    data = changed(saved[1], WEIGHTS, payload(use_pickle=True))
    path, made = tmp_path / "m.pt2", io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            is_json = entry.filename.endswith((".json", "archive_format"))
            bomb = pickle.dumps(Bomb(tmp_path / "boom")) + bytes(1 << 10)
            new.writestr(entry.filename, old.read(entry) if is_json else bomb)
    path.write_bytes(made.getvalue())
    assert "pickle of a subclass" in open_file(path).unreadable["fc.weight"]
    with contextlib.suppress(FileFormatError):
        load_tensors(path)
    assert not (tmp_path / "boom").exists()


@pytest.mark.slow
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6),
    end=st.floats(0, 2),
)
@THOROUGH
@pytest.mark.filterwarnings("ignore::halfstep.errors.HalfstepWarning")
def test_damaged_archives_are_refused_or_read(
    saved: tuple[Decomposed, bytes],
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[float, int]],
    end: float,
) -> None:
    """Any bytes changed, and cut anywhere: tensors or a FileFormatError, nothing else."""
    data = bytearray(saved[1])
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.mktemp("changed") / "m.pt2"
    path.write_bytes(data[: int(end * len(data))])
    with contextlib.suppress(FileFormatError):
        load_tensors(path)
