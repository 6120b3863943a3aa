"""Files are told apart by content, and what is no file of tensors is refused in one line."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from halfstep.errors import FileFormatError, MissingFileError
from halfstep.formats import load_tensors, open_file, save_tensors

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(100)
NO_TENSORS = {
    "text": b"Hello, this is a text file.\n" * 20,
    "png": PNG,
    "html": b"<!DOCTYPE html><html></html>" * 20,
    "git lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "zeros": bytes(1000),
    "other pickle": b"\x80\x02K\x01.\x80\x02K\x02.\x80\x02N.",
    "other zip": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("data", NO_TENSORS.values(), ids=NO_TENSORS.keys())
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    """The error is one line with the path and what it is not."""
    path = tmp_path / "model.pt"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"model\.pt: it is") as caught:
        load_tensors(path)
    assert "\n" not in str(caught.value)


def test_near_misses_say_what_they_are(tmp_path: Path) -> None:
    """A plain pickle, NumPy's files, another zip, and half a checkpoint: what, and the way out."""
    x, path = torch.ones(1000), tmp_path / "x.pt"
    path.write_bytes(pickle.dumps({"a": x}))
    texts = {"it is a plain pickle, as pickle.dump writes it": path.read_bytes()}
    np.savez(path.with_suffix(".npz"), a=x.numpy())
    np.save(path.with_suffix(".npy"), x.numpy())
    texts["it is a NumPy archive (.npz)"] = path.with_suffix(".npz").read_bytes()
    texts["it is a NumPy array: load it with numpy.load"] = path.with_suffix(".npy").read_bytes()
    torch.save(x, path)
    texts["truncated: it starts as a zip archive"] = path.read_bytes()[:2000]
    save_tensors({"a": x}, path.with_suffix(".safetensors"))
    safe = path.with_suffix(".safetensors").read_bytes()
    texts["truncated: it starts as a .halfstep or .safetensors file"] = safe[:40]
    texts["it is no intact safetensors file, truncated"] = safe[:-1]
    for text, data in texts.items():
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=re.escape(f"x.pt: {text}")):
            load_tensors(path)


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    """Both kinds of ``except`` catch it."""
    with pytest.raises(MissingFileError) as caught:
        load_tensors(tmp_path / "no.pt")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, FileFormatError)


def test_missing_empty_and_folder_are_told_apart(tmp_path: Path) -> None:
    """Each says what is there instead, and what is allowed."""
    (tmp_path / "empty.pt").touch()
    for name, text in (("no.pt", "no such file"), ("empty.pt", "is empty"), (".", "is a folder")):
        with pytest.raises(
            FileFormatError,
            match=f"{text}: give a file of hs.save, a safetensors file, a checkpoint",
        ):
            load_tensors(tmp_path / name)


def test_special_files_are_not_waited_for() -> None:
    """A device is refused, not read."""
    with pytest.raises(FileFormatError, match="no regular file"):
        load_tensors("/dev/zero")


def test_a_file_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system's reason is in the error."""
    path = tmp_path / "x.pt"
    torch.save(torch.ones(1), path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileFormatError, match="cannot be read: Permission denied"):
        load_tensors(path)


def test_the_content_counts_not_the_name(tmp_path: Path) -> None:
    """Both kinds are read under the other's name, and under a string as well as a path."""
    save_tensors({"x": torch.ones(1)}, tmp_path / "a.pt")
    torch.save({"x": torch.ones(1)}, tmp_path / "b.safetensors")
    assert open_file(str(tmp_path / "a.pt")).kind == "safetensors"
    assert open_file(tmp_path / "b.safetensors").kind == "torch.save"
    assert load_tensors(str(tmp_path / "a.pt")).keys() == {"x"}


def test_opening_reads_no_data(tmp_path: Path) -> None:
    """Tensors are described from the headers; their bytes may be read much later."""
    path = tmp_path / "x.safetensors"
    save_tensors({"x": torch.arange(4.0)}, path)
    stored = open_file(path).tensors["x"]
    assert (stored.shape, stored.dtype, stored.spec, stored.nbytes) == (
        (4,),
        torch.float32,
        None,
        16,
    )
    path.unlink()
    assert torch.equal(stored.load(), torch.arange(4.0))
