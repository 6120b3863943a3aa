"""SafeWriter: what the safetensors package reads, byte for byte, in any order of writing."""

import io
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file, save

from halfstep.errors import ArgumentError
from halfstep.formats import safe_writer
from halfstep.formats.safe_file import SAVED_DTYPES
from halfstep.formats.safe_writer import SafeWriter

TENSORS = {
    f"{'zyx'[place % 3]}{place}": torch.randint(0, 2, (3, 16), dtype=torch.uint8).view(dtype)
    for place, dtype in enumerate(sorted(SAVED_DTYPES, key=str))
}


def written(names: list[str]) -> bytes:
    """The file of all tensors, put in this order."""
    file = io.BytesIO()
    layouts = {name: (t.dtype, tuple(t.shape)) for name, t in TENSORS.items()}
    writer = SafeWriter(file, layouts, {"a": "b"})
    for name in names:
        writer.put(name, TENSORS[name])
    return file.getvalue()


def test_safetensors_reads_it(tmp_path: Path) -> None:
    """Every dtype, equal in every bit."""
    (tmp_path / "x").write_bytes(written(list(TENSORS)))
    loaded = load_file(tmp_path / "x")
    assert set(loaded) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8))


def test_the_order_of_writing_does_not_matter() -> None:
    """The same tensors give the same bytes."""
    assert written(list(TENSORS)) == written(list(reversed(TENSORS)))


def test_all_elements_are_aligned() -> None:
    """The data starts at a multiple of 8, and each tensor at a multiple of its element."""
    data = written(list(TENSORS))
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            assert entry["data_offsets"][0] % TENSORS[name].itemsize == 0


def test_the_layout_is_that_of_the_package() -> None:
    """Where the package has one order, ours is the same."""
    tensors = {"b": torch.ones(2), "a": torch.zeros(3), "c": torch.ones(1, dtype=torch.int8)}
    file = io.BytesIO()
    layouts = {name: (t.dtype, tuple(t.shape)) for name, t in tensors.items()}
    writer = SafeWriter(file, layouts, {})
    for name, tensor in tensors.items():
        writer.put(name, tensor)
    assert file.getvalue() == save(tensors)


def test_strides_do_not_show() -> None:
    """Transposed, expanded, negated and conjugated tensors are written as their values."""
    x = torch.randn(3, 4, dtype=torch.complex64)
    views = {"t": x.t(), "e": x[:1].expand(5, 4), "c": x.conj(), "n": x.conj().imag, "s": x[:, ::2]}
    file = io.BytesIO()
    layouts = {name: (t.dtype, tuple(t.shape)) for name, t in views.items()}
    writer = SafeWriter(file, layouts, {})
    for name, view in views.items():
        writer.put(name, view)
    loaded = load(file.getvalue())
    assert all(torch.equal(loaded[name], view.resolve_conj()) for name, view in views.items())


def test_a_header_that_no_reader_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is that of safetensors."""
    monkeypatch.setattr(safe_writer, "MAX_HEADER", 100)
    with pytest.raises(ArgumentError, match="readers of safetensors take 100: split the tensors"):
        SafeWriter(io.BytesIO(), {f"{i}": (torch.uint8, (1,)) for i in range(9)}, {})


def test_a_hole_is_zeros(tmp_path: Path) -> None:
    """The file has its full size from the start."""
    with (tmp_path / "x").open("w+b") as file:
        SafeWriter(file, {"x": (torch.float32, (4,))}, {})
    assert load((tmp_path / "x").read_bytes())["x"].tolist() == [0, 0, 0, 0]
