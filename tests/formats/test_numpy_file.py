"""NumPy's files: arrays by name, and nothing in them is run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from halfstep.errors import FileFormatError, MissingFileError
from halfstep.formats.numpy_file import load_arrays


@pytest.mark.parametrize("dtype", ["uint8", ">i4", "float16", "<f8", "bool"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_become_tensors(tmp_path: Path, dtype: str, order: str) -> None:
    """Of any byte order and layout, also of no dimensions and empty ones."""
    whole = np.arange(6).reshape(2, 3)
    arrays = {"a": whole, "none": whole[:0], "number": whole[1, 1]}
    content = {name: np.asarray(value.astype(dtype), order=order) for name, value in arrays.items()}
    np.savez(tmp_path / "x.npz", **content)
    found = load_arrays(tmp_path / "x.npz")
    assert list(found) == list(arrays)
    for name, value in content.items():
        assert found[name].shape == value.shape
        assert np.array_equal(found[name].numpy(), value)


def test_one_array_has_the_name_of_its_file(tmp_path: Path) -> None:
    """And is a tensor to write to, though not to the file."""
    np.save(tmp_path / "images.npy", np.ones(3, dtype=np.float32))
    found = load_arrays(tmp_path / "images.npy")
    found["images"].zero_()
    assert torch.equal(load_arrays(tmp_path / "images.npy")["images"], torch.ones(3))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Python objects, text, other dtypes, truncated and empty files: each with its path."""
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "text.npy", np.array(["a"]))
    (tmp_path / "plain.npy").write_text("hello")
    (tmp_path / "empty.npz").touch()
    np.savez(tmp_path / "whole.npz", a=np.ones(100))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("objects.npy", "text.npy", "plain.npy", "empty.npz", "cut.npz"):
        with pytest.raises(FileFormatError, match=name):
            load_arrays(tmp_path / name)
    with pytest.raises(MissingFileError, match=r"none.npy"):
        load_arrays(tmp_path / "none.npy")
