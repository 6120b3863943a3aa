"""Damaged and hostile checkpoints: an error in words or tensors, never a crash, in bounded time."""

import contextlib
import io
import os
import pickle
import re
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.errors import FileFormatError
from halfstep.formats import load_tensors
from halfstep.formats.summary import summarize
from tests.formats.make_golden import GOLDEN, WRITERS
from tests.strategies import QUICK, THOROUGH

GIB = 1 << 30


def read_all(path: Path) -> None:
    """Load and look at every element, so that whatever was let through is touched."""
    for tensor in load_tensors(path).values():
        summarize(tensor)


def assert_refused_or_read(path: Path) -> None:
    """Raises unless reading ends in tensors or in a FileFormatError that names the file."""
    with contextlib.suppress(FileFormatError):
        read_all(path)
        return
    with pytest.raises(FileFormatError, match=re.escape(str(path))):
        read_all(path)


@pytest.mark.filterwarnings("ignore::halfstep.errors.HalfstepWarning")
@pytest.mark.parametrize("name", sorted(WRITERS))
def test_truncated_files_are_refused(name: str, tmp_path: Path) -> None:
    """Cut at every 50th byte, no file is read as if it were whole."""
    data, path = (GOLDEN / f"{name}.pt").read_bytes(), tmp_path / "cut.pt"
    for end in range(0, len(data) - 1, 50):
        path.write_bytes(data[:end])
        with pytest.raises(FileFormatError, match=r"cut\.pt"):
            read_all(path)


@pytest.mark.filterwarnings("ignore::halfstep.errors.HalfstepWarning")
@given(
    name=st.sampled_from(sorted(WRITERS)),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
)
@THOROUGH
def test_changed_bytes_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[float, int]]
) -> None:
    """Any bytes changed anywhere: tensors or a FileFormatError, nothing else."""
    data = bytearray((GOLDEN / f"{name}.pt").read_bytes())
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.mktemp("changed") / "x.pt"
    path.write_bytes(data)
    assert_refused_or_read(path)


@pytest.mark.filterwarnings("ignore::halfstep.errors.HalfstepWarning")
@given(
    name=st.sampled_from(sorted({*WRITERS} - {"legacy"})),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
)
@THOROUGH
def test_a_changed_pickle_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[float, int]]
) -> None:
    """The same, aimed at the pickle inside an intact zip."""
    with zipfile.ZipFile(GOLDEN / f"{name}.pt") as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    record = next(entry for entry in entries if entry.endswith("/data.pkl"))
    data = bytearray(entries[record])
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.mktemp("changed") / "x.pt"
    write_zip(path, entries | {record: bytes(data)})
    assert_refused_or_read(path)


def write_zip(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    """Write a zip archive of these entries."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


def checkpoint(path: Path, pickled: bytes, **storages: bytes) -> Path:
    """Write a checkpoint with this pickle and these storages."""
    write_zip(path, {"a/data.pkl": pickled} | {f"a/data/{k[1:]}": v for k, v in storages.items()})
    return path


def tensor_pickle(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """The pickle of one float32 tensor over storage "0" that says it has 16 elements."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, 2)
    pickler.dump(_Rebuilt(_Storage(), offset, size, stride))
    return buffer.getvalue()


class _Storage:
    """Stands for storage "0"."""


class _Rebuilt:
    """Pickles as the call that rebuilds a tensor."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __reduce__(self) -> Any:
        return torch._utils._rebuild_tensor_v2, (*self.args, False, {})


class _Pickler(pickle.Pickler):
    """Writes storages as torch does."""

    def persistent_id(self, obj: object) -> Any:
        """The reference to a storage."""
        is_storage = isinstance(obj, _Storage)
        return ("storage", torch.FloatStorage, "0", "cpu", 16) if is_storage else None


IMPOSSIBLE = {
    "too large": ((1 << 40,), (1,), 0),
    "larger than any memory": ((1 << 40, 1 << 40), (1 << 40, 1), 0),
    "negative size": ((-1,), (1,), 0),
    "negative stride": ((4,), (-1,), 8),
    "negative offset": ((4,), (1,), -4),
    "offset past the end": ((1,), (1,), 16),
    "stride past the end": ((2, 2), (16, 1), 0),
    "too few strides": ((2, 2), (1,), 0),
    "1000 dimensions": ((1,) * 1000, (1,) * 1000, 0),
    "repeated 2^60 times": ((1 << 30, 1 << 30), (0, 0), 0),
    "empty and huge": ((0, 1 << 61, 1 << 61), (1, 1, 1), 0),
}


@pytest.mark.parametrize(("size", "stride", "offset"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_impossible_tensors_are_refused(
    tmp_path: Path, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> None:
    """No size, stride or offset from a file reaches memory that the file does not have."""
    path = checkpoint(tmp_path / "x.pt", tensor_pickle(size, stride, offset), _0=bytes(64))
    with pytest.raises(FileFormatError):
        read_all(path)


def test_the_same_writer_makes_readable_tensors(tmp_path: Path) -> None:
    """The files above are refused for their numbers alone."""
    path = checkpoint(tmp_path / "x.pt", tensor_pickle((2, 8), (8, 1)), _0=bytes(64))
    assert torch.equal(load_tensors(path)["tensor"], torch.zeros(2, 8))


def test_a_storage_shorter_than_it_says_is_refused(tmp_path: Path) -> None:
    """The bytes that are there count, not the number that the pickle gives."""
    path = checkpoint(tmp_path / "x.pt", tensor_pickle((16,), (1,)), _0=bytes(60))
    with pytest.raises(FileFormatError, match="its storage has 15"):
        read_all(path)


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    """A zip bomb is not unpacked: compressed entries are not read."""
    entries = {"a/data.pkl": tensor_pickle((1,), (1,)), "a/data/0": bytes(10_000_000)}
    write_zip(tmp_path / "x.pt", entries, zipfile.ZIP_DEFLATED)
    with pytest.raises(FileFormatError, match="is compressed"):
        read_all(tmp_path / "x.pt")


def test_names_do_not_multiply(tmp_path: Path) -> None:
    """Ten lists of ten of the list before: ten billion names, refused."""
    nested: Any = _Rebuilt(_Storage(), 0, (1,), (1,))
    for _ in range(10):
        nested = [nested] * 10
    buffer = io.BytesIO()
    _Pickler(buffer, 2).dump(nested)
    path = checkpoint(tmp_path / "x.pt", buffer.getvalue(), _0=bytes(64))
    start = time.monotonic()
    with pytest.raises(FileFormatError, match="names"):
        read_all(path)
    assert time.monotonic() - start < 60


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """A list in a list, 100,000 times, and a tensor wrapped as often."""
    deep = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    with pytest.raises(FileFormatError, match="nest deeper"):
        read_all(checkpoint(tmp_path / "deep.pt", deep))
    wrap = b"ctorch._utils\n_rebuild_parameter\n"
    wrapped = b"\x80\x02" + wrap * 50_000 + b"N" + b"\x85R" * 50_000 + b"."
    with pytest.raises(FileFormatError, match="wrapped too deeply"):
        read_all(checkpoint(tmp_path / "wrapped.pt", wrapped))


def test_a_cycle_ends(tmp_path: Path) -> None:
    """A list that holds itself is passed over."""
    path = checkpoint(tmp_path / "x.pt", b"\x80\x02]q\x00h\x00a.")
    assert load_tensors(path) == {}


BOMBS = {
    "deep tuple as a key": b"\x80\x02}" + b")" + b"\x85" * 500_000 + b"Ns.",
    "deep tuple as a storage": b"\x80\x02" + b")" + b"\x85" * 500_000 + b"Q.",
    "deep arguments": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)" + b"\x85" * 500_000 + b"R.",
    "a million memos": b"\x80\x02N" + b"\x94" * 1_000_000 + b".",
    "a million dicts": b"\x80\x02" + b"}" * 1_000_000 + b".",
    "a huge number": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 1000 + b".",
}


@pytest.mark.slow
@pytest.mark.parametrize("pickled", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_stay_in_bounds(tmp_path: Path, pickled: bytes) -> None:
    """Each in a process of its own that may take 3 GiB: it ends by itself and in time."""
    path = checkpoint(tmp_path / "bomb.pt", pickled)
    code = f"""
from halfstep.errors import FileFormatError
from halfstep.formats import load_tensors
try:
    load_tensors({str(path)!r})
except FileFormatError:
    pass
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (3 * GIB, 3 * GIB)),
    )
    assert found.returncode == 0, found.stderr


class _Runs:
    """Pickles as a call of os.system."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_checkpoint_that_runs_a_command_does_not(tmp_path: Path, *, is_zip: bool) -> None:
    """The tensors beside the hostile object are read, and the command does not run."""
    path, canary = tmp_path / "x.pt", tmp_path / "canary"
    content = {"w": torch.ones(2), "hook": _Runs(canary)}
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    assert list(load_tensors(path)) == ["w"]
    assert not canary.exists()


@given(data=st.binary(max_size=300), head=st.sampled_from([b"", b"PK\x03\x04", b"\x80\x02"]))
@QUICK
def test_random_files_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, head: bytes
) -> None:
    """Bytes that are no checkpoint, whatever they start with."""
    path = tmp_path_factory.mktemp("random") / "x.pt"
    path.write_bytes(head + data)
    with pytest.raises(FileFormatError):
        load_tensors(path)
