"""NumPy's files: one array (.npy), or several with names (.npz)."""

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfstep.errors import FileFormatError, MissingFileError
from halfstep.formats.places import as_path, located


def load_arrays(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The arrays of a file by name, in its order; that of a ``.npy`` file has the file's name.

    Nothing in the file is executed: arrays of Python objects are refused.

    Raises ``FileFormatError`` for a file that is truncated, corrupt, of another kind or with arrays
    that torch has no dtype for, and ``MissingFileError`` where there is none.

    >>> import numpy, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numpy.savez(f"{folder}/x.npz", x=numpy.ones(2))
    ...     load_arrays(f"{folder}/x.npz")
    {'x': tensor([1., 1.], dtype=torch.float64)}
    """
    place = as_path(path)
    if not place.exists():
        raise MissingFileError(f"{place}: there is no such file: give a .npy or .npz file")
    return located(place, "", lambda: _tensors(place.stem, _read(place)))


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else {n: found[n] for n in found.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"it is no NumPy file that can be read: {error}") from error


def _tensors(name: str, found: Any) -> dict[str, Tensor]:
    arrays = {name: found} if isinstance(found, np.ndarray) else found
    return {key: _tensor(key, array) for key, array in arrays.items()}


def _tensor(name: str, array: Any) -> Tensor:
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # read-only memory: nothing writes to it
            return torch.from_numpy(native).reshape(array.shape)
    except TypeError as error:
        raise FileFormatError(f"array {name!r} is {array.dtype}, which torch lacks") from error
