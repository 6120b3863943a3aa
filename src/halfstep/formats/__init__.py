"""Files in and out, as tensors; nothing that a file contains is ever executed."""

from halfstep.formats.files import load_model, load_tensors, open_file, open_model
from halfstep.formats.model_file import ModelFile
from halfstep.formats.model_save import save_model
from halfstep.formats.quantize_file import FileReport, FileRow, quantize_file
from halfstep.formats.save import save_tensors
from halfstep.formats.stored import StoredTensor, TensorFile

__all__ = [
    "FileReport",
    "FileRow",
    "ModelFile",
    "StoredTensor",
    "TensorFile",
    "load_model",
    "load_tensors",
    "open_file",
    "open_model",
    "quantize_file",
    "save_model",
    "save_tensors",
]
