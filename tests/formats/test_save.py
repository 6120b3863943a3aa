"""save_tensors and load_tensors: equal in every bit, and a file that is whole or not there."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.formats import atomic, load_tensors, save_tensors
from halfstep.formats.safe_file import SAVED_DTYPES
from halfstep.formats.safe_writer import SafeWriter
from halfstep.spec import PerChannel, QSpec, int4, int8, uint8
from halfstep.tensor import QTensor, from_int_repr, quantize
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS, QUICK, THOROUGH, Case, cases


def assert_same(left: Tensor, right: Tensor) -> None:
    """Raises unless two quantized tensors are equal in every part."""
    assert isinstance(left, QTensor)
    assert isinstance(right, QTensor)
    assert (left.spec, left.dtype, left.shape) == (right.spec, right.dtype, right.shape)
    assert torch.equal(left.int_repr(), right.int_repr())
    assert all(map(torch.equal, left.qparams(), right.qparams()))


@given(case=cases(), stands_for=st.sampled_from(FLOAT_DTYPES))
@THOROUGH
def test_every_format_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, case: Case, stands_for: torch.dtype
) -> None:
    """Every dtype, bounds, granularity, shape and memory format, through both kinds of file."""
    folder = tmp_path_factory.mktemp("saved")
    q = quantize(case.x, case.spec, scale=case.scale, zero_point=case.zero_point).to(stands_for)
    save_tensors({"q": q}, folder / "q.safetensors")
    assert_same(load_tensors(folder / "q.safetensors")["q"], q)
    torch.save({"q": q}, folder / "q.pt")
    assert_same(load_tensors(folder / "q.pt")["q"], q)


@pytest.mark.parametrize("layout", sorted(MEMORY_FORMATS))
def test_plain_tensors_of_any_layout_come_back_equal(tmp_path: Path, layout: str) -> None:
    """Strides are not kept, values are."""
    x = MEMORY_FORMATS[layout](torch.randn(2, 3, 4, 5))
    save_tensors({"x": x}, tmp_path / "x.safetensors")
    assert torch.equal(load_tensors(tmp_path / "x.safetensors")["x"], x)


@pytest.mark.parametrize("dtype", sorted(SAVED_DTYPES, key=str), ids=str)
def test_every_plain_dtype_comes_back_equal(tmp_path: Path, dtype: torch.dtype) -> None:
    """All dtypes that safetensors has, zero-size and 0-dimensional tensors included."""
    bytes_ = torch.randint(0, 2, (48,), dtype=torch.uint8)
    content = {
        "x": bytes_.view(dtype),
        "scalar": bytes_.view(dtype)[0],
        "empty": bytes_.view(dtype)[:0],
    }
    save_tensors(content, tmp_path / "x.safetensors")
    loaded = load_tensors(tmp_path / "x.safetensors")
    for name, tensor in content.items():
        assert loaded[name].dtype == dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].reshape(-1).view(torch.uint8).tolist() == (
            tensor.reshape(-1).view(torch.uint8).tolist()
        )


def test_tensors_that_share_memory_are_saved_each(tmp_path: Path) -> None:
    """Tied weights, views of one tensor, and parameters."""
    x = nn.Parameter(torch.randn(4, 4))
    content = {"a": x, "b": x, "column": x[:, 1], "rows": x[1:3], "conj": torch.ones(2) + 1j}
    content["conj"] = content["conj"].to(torch.complex64).conj()
    save_tensors(content, tmp_path / "x.safetensors")
    loaded = load_tensors(tmp_path / "x.safetensors")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in content.items())


def test_a_stranger_can_read_the_file(tmp_path: Path) -> None:
    """Any safetensors reader sees integers, scale and zero point; 4-bit codes lowest bits first."""
    q = from_int_repr(torch.tensor([[1, -2, 7]]), int4, scale=0.5, zero_point=1)
    save_tensors({"w": q}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["w", "w:scale", "w:zero_point"]
        assert file.get_tensor("w").tolist() == [0xE1, 0x07]
        assert file.get_tensor("w:scale").tolist() == [[0.5]]
        assert file.get_tensor("w:zero_point").tolist() == [[1]]
        assert file.metadata() == {
            "halfstep": '{"format": 1, "tensors": {"w": {"shape": [1, 3], "spec": '
            '{"dtype": "int4", "granularity": "PerTensor"}, "stands_for": "float32"}}}'
        }


def test_plain_files_carry_no_metadata(tmp_path: Path) -> None:
    """Without a quantized tensor the file is an ordinary safetensors file."""
    save_tensors({"w": torch.zeros(2)}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="np") as file:
        assert file.metadata() is None


def test_tensors_come_back_in_the_order_given(tmp_path: Path) -> None:
    """Quantized or plain: first written, first read; strangers' files keep safetensors' order."""
    q, plain = quantize(torch.ones(2, 2), int8), torch.zeros(1)
    path = tmp_path / "x.safetensors"
    for content in ({"z": q, "a": plain, "m": q}, {"z": plain, "10": plain, "9": plain}):
        save_tensors(content, path)
        assert list(load_tensors(path)) == list(content)
    save_file({"z": plain, "a": plain.clone()}, path)
    assert list(load_tensors(path)) == ["a", "z"]


def test_an_order_that_others_made_stale_is_harmless(tmp_path: Path) -> None:
    """Names that are gone are passed over, names that are new come last."""
    text = '{"format": 1, "tensors": {}, "order": ["gone", "z", "a", "z"]}'
    content = {name: torch.full((1,), ord(name)) for name in "anz"}
    save_file(content, tmp_path / "x.safetensors", {"halfstep": text})
    loaded = load_tensors(tmp_path / "x.safetensors")
    assert [(name, loaded[name].item()) for name in loaded] == [("z", 122), ("a", 97), ("n", 110)]


@pytest.mark.parametrize("call", [lambda p: save_tensors({}, p), load_tensors])
def test_what_is_no_path_is_refused(call: Callable[[Any], object]) -> None:
    """Numbers, open files and bytes are no paths; a zero byte or half a character is in none."""
    for path in (3, None, io.BytesIO(), b"x.pt"):
        with pytest.raises(ArgumentTypeError, match="path is a"):
            call(path)
    for path in ("a\0b", "\ud800"):
        with pytest.raises(ArgumentError, match="no file has such a name"):
            call(path)


def test_a_folder_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, a file, read-only, or the target itself: never the name of a temporary file."""
    (tmp_path / "file").touch()

    def refuse(**kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", "/x/.w.part")

    def text_of(path: Path, kind: type[OSError]) -> str:
        with pytest.raises(kind) as caught:
            save_tensors({"w": torch.ones(1)}, path)
        assert ".part" not in str(caught.value)
        return str(caught.value)

    assert f"no such folder: create it: '{tmp_path / 'no'}'" in text_of(
        tmp_path / "no" / "w", FileNotFoundError
    )
    assert f"'{tmp_path / 'file'}'" in text_of(tmp_path / "file" / "w", NotADirectoryError)
    assert f"it is a folder: name a file: '{tmp_path}'" in text_of(tmp_path, IsADirectoryError)
    monkeypatch.setattr(atomic.tempfile, "mkstemp", refuse)
    assert f"Permission denied: '{tmp_path}'" in text_of(tmp_path / "w", PermissionError)


Q = quantize(torch.ones(2, 2), QSpec(int8, PerChannel(0)))
REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "taken scale": ({"w": Q, "w:scale": torch.ones(1)}, ArgumentError, "'w:scale' is needed twice"),
    "taken earlier": ({"w:zero_point": Q, "w": Q}, ArgumentError, "is needed twice"),
    "number": ({"w": 3}, ArgumentTypeError, "is a int: only tensors"),
    "name": ({3: torch.ones(1)}, ArgumentError, "3 cannot name a tensor"),
    "half a character": ({"\ud800": torch.ones(1)}, ArgumentError, "half a character"),
    "reserved name": ({"__metadata__": torch.ones(1)}, ArgumentError, "cannot name a tensor"),
    "sparse": ({"w": torch.eye(2).to_sparse()}, ArgumentTypeError, "no plain data"),
    "meta": ({"w": torch.empty(2, device="meta")}, ArgumentTypeError, "no plain data"),
    "dtype": ({"w": torch.ones(1, dtype=torch.complex128)}, ArgumentTypeError, "complex128"),
    "no mapping": ([torch.ones(1)], ArgumentTypeError, "tensors is a list"),
}


@pytest.mark.parametrize(("content", "kind", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_saved_is_refused(
    tmp_path: Path, content: Any, kind: type[Exception], text: str
) -> None:
    """The error names the tensor, and no file appears."""
    with pytest.raises(kind, match=text):
        save_tensors(content, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "step"), [(SafeWriter, "put"), (atomic, "_sync"), (atomic, "_mode_of")]
)
def test_a_failure_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, step: str
) -> None:
    """Whatever fails before the rename, the old file is intact and nothing is left behind."""
    path = tmp_path / "w.safetensors"
    save_tensors({"w": Q}, path)
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, step, fail)
    with pytest.raises(OSError, match="No space left"):
        save_tensors({"w": torch.zeros(10)}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_mapped_file_can_be_overwritten(tmp_path: Path) -> None:
    """Tensors loaded from the old file keep their values when the new one replaces it."""
    path = tmp_path / "w.safetensors"
    save_tensors({"w": torch.ones(1000)}, path)
    loaded = load_tensors(path)
    save_tensors({"w": loaded["w"] * 2}, path)
    assert torch.equal(loaded["w"], torch.ones(1000))
    assert torch.equal(load_tensors(path)["w"], 2 * torch.ones(1000))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_permissions_and_links_stay(tmp_path: Path) -> None:
    """A new file gets the usual permissions, a replaced one keeps its own; a link stays a link."""
    target, link, other = tmp_path / "w.st", tmp_path / "link.st", tmp_path / "plain"
    save_tensors({"w": Q}, target)
    other.touch()
    assert target.stat().st_mode == other.stat().st_mode
    target.chmod(0o640)
    link.symlink_to(target)
    save_tensors({"w": Q}, link)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    """Python's own error names the place."""
    with pytest.raises(FileNotFoundError):
        save_tensors({"w": Q}, tmp_path / "missing" / "w.safetensors")


@given(case=cases(max_bits=8))
@QUICK
def test_a_file_is_smaller_than_floats(
    tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    """The integers in the file take the bits that their dtype says, rounded up to bytes."""
    path = tmp_path_factory.mktemp("size") / "q.safetensors"
    q = quantize(case.x, case.spec, scale=case.scale, zero_point=case.zero_point)
    save_tensors({"q": q}, path)
    bits = q.spec.dtype.bits if q.spec.dtype.is_packed else 8
    with safe_open(path, framework="np") as file:
        assert file.get_tensor("q").nbytes == -(-q.numel() * bits // 8)


def test_a_state_dict_with_quantized_parameters(tmp_path: Path) -> None:
    """The state dict of a module with a quantized weight is saved as it is."""
    layer = nn.Linear(4, 3)
    quantized = quantize(layer.weight, QSpec(uint8, PerChannel(0)))
    layer.weight = nn.Parameter(quantized, requires_grad=False)
    save_tensors(layer.state_dict(), tmp_path / "layer.safetensors")
    loaded = load_tensors(tmp_path / "layer.safetensors")
    assert_same(loaded["weight"], quantized)
    assert torch.equal(loaded["bias"], layer.bias)
