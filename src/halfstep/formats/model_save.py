"""Writing a quantized model into one file that describes itself."""

import inspect
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.formats.atomic import replacing
from halfstep.formats.module_records import Entries, records_of
from halfstep.formats.places import as_path
from halfstep.formats.quantized_json import part_to_plain
from halfstep.formats.save import entries_of, write_entries
from halfstep.formats.seal import BLANK, SEAL_KEY, seal
from halfstep.formats.signatures import signature_to_plain
from halfstep.formats.squeezed import squeezed
from halfstep.graph.product import Forward
from halfstep.graph.quantized import Quantized
from halfstep.spec.recipe import Recipe

MODEL_KEY: Final = "halfstep-model"
MODEL_VERSION: Final = 1


def save_model(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    recipe: Recipe | None = None,
    calibrated: int = 0,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a model whose modules run programs into one ``.halfstep`` file.

    The file holds the programs, the integers, scales and zero points, all other parameters and
    buffers, and what is needed to read them; any reader of safetensors opens it. The same model
    gives the same bytes. It appears whole or not at all.

    recipe, calibrated: how the model was made, and on how many batches; kept for a reader.
    extra: texts of one's own.

    Raises ``ArgumentError`` for a model without programs and for a tensor on the meta device,
    ``ArgumentTypeError`` for what no file can hold, ``OSError`` when the disk refuses.

    >>> import tempfile
    >>> from halfstep.formats import load_model
    >>> from halfstep.graph.capture import capture
    >>> from halfstep.graph.product import product
    >>> model, x = torch.nn.Linear(2, 3).eval(), torch.ones(4, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(f"{folder}/m.halfstep", product(model, capture(model, (x,))))
    ...     loaded = load_model(f"{folder}/m.halfstep")
    >>> loaded, torch.equal(loaded(x), model(x))
    (Linear(), True)
    """
    place = as_path(path)
    regions = _regions(model)
    _check_extra(extra)
    entries = Entries()
    records = records_of(model, entries, _attributes(model, regions))
    about: dict[str, Any] = {
        "format": MODEL_VERSION,
        "halfstep": version("halfstep"),
        "torch": torch.__version__,
        "class": str(model._get_name()),
        "engine": _engine(regions),
        "recipe": _recipe_to_plain(recipe),
        "calibrated": calibrated,
        "extra": dict(extra),
        "modules": [record.to_plain() for record in records],
        "regions": {at: _region_to_plain(forward, entries) for at, forward in regions.items()},
    }
    about["copies"] = entries.leave_out_copies()
    plain, metadata = entries_of(entries.tensors)
    metadata |= {MODEL_KEY: squeezed(json.dumps(about, allow_nan=False)), SEAL_KEY: BLANK}
    with replacing(place) as file:
        write_entries(file, plain, metadata)
        seal(file)


def _regions(model: object) -> dict[str, Forward]:
    """What runs programs, by the path of its module."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"model is a {type(model).__name__}: give the quantized nn.Module")
    found = {
        path: vars(module)["forward"]
        for path, module in model.named_modules()
        if isinstance(vars(module).get("forward"), Forward)
    }
    if not found:
        raise ArgumentError(
            f"this {type(model).__name__} runs no program, so it is not quantized: save what "
            "hs.ptq.quantize returned, or the tensors alone with "
            "hs.save_tensors(model.state_dict(), path)"
        )
    return found


def _check_extra(extra: object) -> None:
    is_text = isinstance(extra, Mapping) and all(
        isinstance(part, str) for pair in extra.items() for part in pair
    )
    if not is_text:
        raise ArgumentTypeError(f"extra is {str(extra)[:100]}: give a dict of texts")


def _attributes(model: nn.Module, regions: Mapping[str, Forward]) -> dict[str, set[str]]:
    """The tensors that programs read and that are neither parameters nor buffers, by module."""
    first = {id(module): path for path, module in model.named_modules()}
    found: dict[str, set[str]] = {}
    for path, forward in regions.items():
        for part in forward.programs:
            program = part.program if isinstance(part, Quantized) else part
            for inner in program.parameters.values():
                at, _, name = f"{path}.{inner}".removeprefix(".").rpartition(".")
                owner = model.get_submodule(at)
                if name not in owner._parameters and name not in owner._buffers:
                    found.setdefault(first[id(owner)], set()).add(name)
    return found


def _engine(regions: Mapping[str, Forward]) -> str | None:
    names = {forward.engine.name for forward in regions.values() if forward.engine is not None}
    return min(names, default=None)


def _recipe_to_plain(recipe: Recipe | None) -> dict[str, Any] | None:
    """The recipe; of one that names objects of this process, the text alone."""
    if recipe is None:
        return None
    try:
        rules: dict[str, Any] | None = recipe.to_dict()
    except ArgumentTypeError:
        rules = None
    return {"name": recipe.name, "text": str(recipe), "plain": rules}


def _region_to_plain(forward: Forward, entries: Entries) -> dict[str, Any]:
    signature = inspect.signature(forward)
    return {
        "signature": signature_to_plain(signature),
        "programs": [
            part_to_plain(part, lambda name, tensor: entries.keep(f"constant.{name}", tensor))
            for part in forward.programs
        ],
    }
