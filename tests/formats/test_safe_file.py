"""Safetensors files of anyone, and damaged ones of Halfstep's."""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file

from halfstep.errors import FileFormatError
from halfstep.formats import load_tensors, open_file, save_tensors
from halfstep.formats.summary import summarize
from halfstep.spec import PerChannel, QSpec, int4, int8
from halfstep.tensor import quantize
from tests.strategies import THOROUGH


def test_anyones_file_is_read(tmp_path: Path) -> None:
    """A file without Halfstep's metadata, or with other metadata, gives its plain tensors."""
    content = {"a": torch.randn(2, 3), "b:scale": torch.ones(1, dtype=torch.float16)}
    save_file(content, tmp_path / "x.safetensors", {"format": "pt"})
    opened = open_file(tmp_path / "x.safetensors")
    assert opened.kind == "safetensors"
    assert {name: stored.nbytes for name, stored in opened.tensors.items()} == {
        "a": 24,
        "b:scale": 2,
    }
    assert all(torch.equal(t, content[n]) for n, t in load_tensors(opened.path).items())


def saved(path: Path) -> dict[str, Any]:
    """Save two quantized tensors; returns the parts of the file."""
    x = torch.randn(4, 6)
    content = {"w": quantize(x, QSpec(int8, PerChannel(0))), "p": quantize(x, int4)}
    save_tensors(content, path)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {"header": header, "data": data[8 + length :]}


def rewrite(path: Path, parts: dict[str, Any], metadata: Any) -> None:
    """Write the file again with other metadata."""
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    header = json.dumps(parts["header"] | {"__metadata__": {"halfstep": text}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + parts["data"])


GOOD = {
    "spec": {"dtype": "int8", "granularity": "PerTensor"},
    "shape": [4, 6],
    "stands_for": "float32",
}
BAD_METADATA: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not JSON"),
    "deep JSON": ("[" * 100_000, "is not JSON"),
    "a number": (3, "lacks 'format' or 'tensors'"),
    "no tensors": ({"format": 1}, "lacks 'format' or 'tensors'"),
    "newer": ({"format": 2, "tensors": {}}, "format 2, and this Halfstep reads up to 1"),
    "absent tensor": ({"format": 1, "tensors": {"x": GOOD}}, "'x', which it does not hold"),
    "no spec": ({"format": 1, "tensors": {"w": {"shape": [4, 6]}}}, "'w': its metadata needs"),
    "odd dtype": (
        {
            "format": 1,
            "tensors": {"w": GOOD | {"spec": {"dtype": "int9", "granularity": "PerTensor"}}},
        },
        "'int9' is not an integer format",
    ),
    "odd granularity": (
        {"format": 1, "tensors": {"w": GOOD | {"spec": {"dtype": "int8", "granularity": []}}}},
        "format is not readable",
    ),
    "other shape": ({"format": 1, "tensors": {"w": GOOD | {"shape": [5, 6]}}}, "is stored as"),
    "negative shape": ({"format": 1, "tensors": {"w": GOOD | {"shape": [-4, -6]}}}, "needs 'spec'"),
    "other float": ({"format": 1, "tensors": {"w": GOOD | {"stands_for": "int8"}}}, "needs 'spec'"),
    "other companions": ({"format": 1, "tensors": {"w": GOOD}}, "scale"),
    "a companion": ({"format": 1, "tensors": {"w": GOOD, "w:scale": GOOD}}, "does not hold"),
    "odd order": ({"format": 1, "tensors": {}, "order": [3]}, "has an 'order' that is no names"),
    "no companions": ({"format": 1, "tensors": {"w:scale": GOOD}}, "'w:scale'"),
}


@pytest.mark.parametrize(("metadata", "text"), BAD_METADATA.values(), ids=BAD_METADATA.keys())
def test_bad_metadata_is_refused(tmp_path: Path, metadata: Any, text: str) -> None:
    """The error names the file and the tensor."""
    path = tmp_path / "x.safetensors"
    rewrite(path, saved(path), metadata)
    with pytest.raises(FileFormatError, match=text) as caught:
        load_tensors(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_integers_outside_the_format_are_refused(tmp_path: Path) -> None:
    """Bounds narrower than the integers in the file do not pass."""
    path = tmp_path / "x.safetensors"
    parts = saved(path)
    spec = {"dtype": "int8[-3, 3]", "granularity": "PerChannel", "axis": 0}
    rewrite(path, parts, {"format": 1, "tensors": {"w": GOOD | {"spec": spec}}})
    with pytest.raises(FileFormatError, match=r"'w'.*\[-3, 3\]"):
        load_tensors(path)


@given(changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6))
@THOROUGH
def test_changed_bytes_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, int]]
) -> None:
    """Any bytes changed anywhere: tensors or a FileFormatError, nothing else."""
    path = tmp_path_factory.mktemp("changed") / "x.safetensors"
    saved(path)
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path.write_bytes(data)
    with contextlib.suppress(FileFormatError):
        for tensor in load_tensors(path).values():
            summarize(tensor)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    """Cut at every 20th byte, no file is read as if it were whole."""
    path = tmp_path / "x.safetensors"
    saved(path)
    data = path.read_bytes()
    for end in range(0, len(data) - 1, 20):
        path.write_bytes(data[:end])
        with pytest.raises(FileFormatError):
            load_tensors(path)
