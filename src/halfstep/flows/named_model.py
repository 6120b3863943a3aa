"""A model that is named on a command line: a file, or a function of the user's code."""

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from halfstep.errors import ArgumentError, FileFormatError, HalfstepError, MissingFileError
from halfstep.formats import load_tensors
from halfstep.graph.exported import model_of

EXPORTED = ".pt2"
SAVED = ".halfstep"
WEIGHTS = ".safetensors"


def named_model(name: str, weights: Path | None = None) -> nn.Module:
    """The float model of a name, in eval mode.

    name: a ``.pt2`` file of ``torch.export.save``, which torch loads and may run code of, or
        ``package.module:factory``, which runs the user's code.
    weights: a safetensors file or checkpoint to fill it with, read without running anything in it.

    Raises ``ArgumentError`` for any other name, for code that fails and for weights that do not
    fit, ``FileFormatError`` for a file that is no exported program.
    """
    if name.endswith(EXPORTED):
        model = _exported(Path(name))
    elif ":" in name:
        model = _made(name)
    else:
        raise ArgumentError(
            f"{name!r} names no model: give a {EXPORTED} file of torch.export.save, or "
            "package.module:factory"
        )
    if weights is not None:
        _fill(model, weights)
    return model.eval()


def found(name: str) -> Any:
    """What ``package.module:name`` stands for; importing runs the module.

    Raises ``ArgumentError`` where there is no such thing.

    >>> found("math:pi")
    3.141592653589793
    """
    where, _, what = name.partition(":")
    try:
        value: Any = importlib.import_module(where)
    except Exception as error:
        raise ArgumentError(f"{name}: importing {where} failed: {said(error)}") from error
    for part in what.split("."):
        if not hasattr(value, part):
            raise ArgumentError(f"{name}: {where} has no {what}")
        value = getattr(value, part)
    return value


def called(name: str, function: Callable[[], Any]) -> Any:
    """What a function of the user's returns; what it raises becomes an ``ArgumentError``."""
    try:
        return function()
    except HalfstepError:
        raise
    except Exception as error:
        raise ArgumentError(f"{name} failed: {said(error)}") from error


def said(error: Exception) -> str:
    """An error of the user's code in one line: its kind, its text, and where it was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    text = " ".join(str(error).split())[:300]
    file = last.tb_frame.f_code.co_filename if last else "<unknown>"
    place = "" if last is None or file.startswith("<") else f" ({file}, line {last.tb_lineno})"
    return f"{type(error).__name__}: {text}{place}"


def _made(name: str) -> nn.Module:
    value = found(name)
    made = value if isinstance(value, nn.Module) else None
    if made is None and callable(value):
        made = called(name, value)
    if not isinstance(made, nn.Module):
        raise ArgumentError(
            f"{name} gives a {type(made if callable(value) else value).__name__}: it has to be an "
            "nn.Module, or a function without arguments that returns one"
        )
    return made


def _exported(path: Path) -> nn.Module:
    if not path.exists():
        raise MissingFileError(f"{path}: there is no such file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about its own formats
            program = torch.export.load(path)
    except Exception as error:
        raise FileFormatError(f"{path}: torch.export.load fails: {said(error)}") from error
    return model_of(program)


def _fill(model: nn.Module, weights: Path) -> None:
    tensors = load_tensors(weights)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:300]
        raise ArgumentError(f"{weights}: its tensors do not fit the model: {text}") from error


def importable_here() -> None:
    """Let modules in the current folder be imported, as ``python -m`` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")
