"""Damaged, hostile and newer model files: one kind of error that names the file, never a crash."""

import contextlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.errors import FileFormatError
from halfstep.formats import load_model, load_tensors, open_file, open_model, save_model, seal
from halfstep.formats.signatures import signature_from_plain
from tests.formats.stored_models import Net, ReferenceEngine, by_hand
from tests.strategies import THOROUGH


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model file."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("whole") / "m.halfstep"
    save_model(path, by_hand(Net(), torch.randn(3, 1, 8, 8)), calibrated=3)
    return path.read_bytes()


def assert_refused(path: Path, text: str = "") -> None:
    """Raises unless the file is refused as a model with an error that names it, once."""
    with pytest.raises(FileFormatError, match=re.escape(str(path))) as error:
        load_model(path, engine=ReferenceEngine())
    assert text in str(error.value)
    assert str(error.value).count(str(path)) == 1


@pytest.mark.slow
def test_truncated_files_are_refused(data: bytes, tmp_path: Path) -> None:
    """Cut anywhere: each byte of the start and the end, each 41st between."""
    path = tmp_path / "cut.halfstep"
    ends = {*range(40), *range(len(data) - 400, len(data)), *range(0, len(data), 41)}
    for end in sorted(ends):
        path.write_bytes(data[:end])
        assert_refused(path)
    path.write_bytes(data + b"\0")
    assert_refused(path)


@pytest.mark.slow
def test_a_flipped_bit_is_refused(data: bytes, tmp_path: Path) -> None:
    """In every byte of the file, header, checksum and tensors alike."""
    path, changed = tmp_path / "flipped.halfstep", bytearray(data)
    for place in range(0, len(data), 7):
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        assert_refused(path)
        changed[place] = data[place]


@pytest.mark.slow
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=9)), min_size=1, max_size=4))
@THOROUGH
def test_random_bytes_are_refused(
    data: bytes, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, bytes]]
) -> None:
    """Bytes put in, left out or overwritten anywhere."""
    changed = bytearray(data)
    for where, new in changes:
        place = int(where * (len(changed) - 1))
        changed[place : place + len(new) // 2] = new
    path = tmp_path_factory.mktemp("changed") / "x.halfstep"
    path.write_bytes(changed)
    if changed != data:
        assert_refused(path)


def test_a_damaged_file_is_refused_by_every_reader(data: bytes, tmp_path: Path) -> None:
    """The tensors of a model file are not read when the checksum differs."""
    path = tmp_path / "m.halfstep"
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for read in (open_file, open_model, load_tensors):
        with pytest.raises(FileFormatError, match="the checksum differs"):
            read(path)


def rewritten(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """The file with another description, and the checksum of it."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    about = change(json.loads(header["__metadata__"]["halfstep-model"]))
    header["__metadata__"]["halfstep-model"] = json.dumps(about)
    header["__metadata__"][seal.SEAL_KEY] = seal.BLANK
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file with a right checksum."""
    path.write_bytes(content)
    with path.open("r+b") as file:
        seal.seal(file)


def region(**changes: Any) -> Callable[[Any], Any]:
    """Puts other parts into the program of the whole model."""

    def change(about: Any) -> Any:
        about["regions"][""]["programs"][0]["program"] |= changes
        return about

    return change


def modules(*records: Any) -> Callable[[Any], Any]:
    """Puts other modules."""
    return lambda about: about | {"modules": list(records)}


ROOT = {"path": "", "class": "Net", "training": False}
HOSTILE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "newer": (
        lambda about: about | {"format": 2},
        "written by a newer Halfstep (format 2); this one reads 1: upgrade",
    ),
    "no object": (lambda about: [about], "incomplete"),
    "nothing": (lambda about: {}, "incomplete"),
    "calibrated": (lambda about: about | {"calibrated": "x"}, "incomplete"),
    "no program": (lambda about: about | {"regions": {"": {"programs": []}}}, "lacks its"),
    "elsewhere": (
        lambda about: (
            about | {"regions": {"": about["regions"][""], "no.where": about["regions"][""]}}
        ),
        "do not fit",
    ),
    "writes files": (
        region(steps=[{"name": "add_1", "op": "aten.save.default", "args": ["x", "file"]}]),
        "aten.save.default",
    ),
    "constant": (region(constants={"c": "nowhere"}), "'nowhere', which is not there"),
    "parameter": (region(parameters={"w": "conv9.weight"}), ""),
    "no modules": (modules(), "it holds no module"),
    "no root": (modules({"path": "a", "class": "A", "training": False}), "has no place"),
    "orphan": (modules(ROOT, ROOT | {"path": "a.b"}), "has no place"),
    "twice": (modules(ROOT, ROOT), "has no place"),
    "same as none": (modules(ROOT, {"path": "a", "same": "b"}), "the same as none"),
    "deep": (modules(ROOT, ROOT | {"path": "a." * 300 + "b"}), "has no place"),
    "no tensor": (modules(ROOT | {"parameters": {"w": "nowhere"}}), "which is not there"),
    "no names": (modules(ROOT | {"parameters": {"w": 3}}), "no names and entries"),
    "dunder": (modules(ROOT | {"attributes": {"__class__": "offset"}}), "no names and entries"),
    "own state": (modules(ROOT | {"attributes": {"_parameters": "offset"}}), "no names and"),
    "own list": (modules(ROOT | {"parameters": {"_buffers": "offset"}}), "no names and entries"),
    "no name": (modules(ROOT | {"parameters": {"": "offset"}}), "no names and entries"),
    "method": (modules(ROOT | {"attributes": {"forward": "nowhere"}}), "which is not there"),
    "integers": (modules(ROOT | {"parameters": {"a": "offset:scale"}}), "which is not there"),
    "more": (modules(ROOT | {"hooks": {}}), "a module is not readable"),
    "signature": (
        lambda about: (
            about
            | {"regions": {"": about["regions"][""] | {"signature": [{"name": "1", "kind": "x"}]}}}
        ),
        "a parameter of a signature",
    ),
}


@pytest.mark.parametrize(("change", "text"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_description_is_refused(
    data: bytes, tmp_path: Path, change: Callable[[Any], Any], text: str
) -> None:
    """Under a right checksum, what it says of its model is checked as anyone's input."""
    path = tmp_path / "m.halfstep"
    write_sealed(path, rewritten(data, change))
    assert_refused(path, text)
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_unchanged_description_is_read(data: bytes, tmp_path: Path) -> None:
    """The tests above fail for what they change, not for how they write."""
    path = tmp_path / "m.halfstep"
    write_sealed(path, rewritten(data, lambda about: about))
    load_model(path, engine=ReferenceEngine())(torch.randn(2, 1, 8, 8))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


def test_an_argument_without_a_name_is_refused() -> None:
    """Python's own classes fail on it in a way of their own."""
    with pytest.raises(FileFormatError, match="a parameter of a signature is not readable"):
        signature_from_plain([{"name": "", "kind": "POSITIONAL_OR_KEYWORD"}])


@pytest.mark.slow
@given(picks=st.lists(st.floats(0, 0.999), min_size=1, max_size=9), value=JSON)
@THOROUGH
def test_any_value_anywhere_is_refused_or_read(
    data: bytes, tmp_path_factory: pytest.TempPathFactory, picks: list[float], value: Any
) -> None:
    """Some part of the description replaced by some JSON: a model or a FileFormatError."""

    def change(about: Any) -> Any:
        node = about
        for pick in picks:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = keys[int(pick * len(keys))] if keys else None
            is_last = pick == picks[-1] or key is None or not isinstance(node[key], dict | list)
            if is_last or not node[key]:
                if key is not None:
                    node[key] = value
                return about
            node = node[key]
        return about

    path = tmp_path_factory.mktemp("any") / "m.halfstep"
    write_sealed(path, rewritten(data, change))
    with contextlib.suppress(FileFormatError):
        load_model(path, engine=ReferenceEngine())
        open_file(path)
        return
    assert_refused(path)
