"""Files in and out, as tensors; nothing that a file contains is ever executed."""

from halfstep.formats.files import load_tensors, open_file
from halfstep.formats.save import save_tensors
from halfstep.formats.stored import StoredTensor, TensorFile

__all__ = ["StoredTensor", "TensorFile", "load_tensors", "open_file", "save_tensors"]
