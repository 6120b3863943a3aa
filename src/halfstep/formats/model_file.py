"""Reading a ``.halfstep`` file: what it says of itself, and the model in it."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from halfstep.errors import ArgumentError, FileFormatError, HalfstepError
from halfstep.formats.model_save import MODEL_KEY, MODEL_VERSION
from halfstep.formats.module_records import ModuleRecord
from halfstep.formats.quantized_json import Part, part_from_plain
from halfstep.formats.rebuilt import filled, rebuilt
from halfstep.formats.safe_file import open_safe_file
from halfstep.formats.seal import SEAL_KEY, check_seal
from halfstep.formats.signatures import StoredForward, signature_from_plain
from halfstep.formats.squeezed import unsqueezed
from halfstep.formats.stored import StoredTensor, TensorFile
from halfstep.graph.engine import Engine
from halfstep.graph.product import install
from halfstep.spec.recipe import Recipe

MODEL_KIND: Final = "halfstep model"


@dataclass(frozen=True)
class ModelFile:
    """An open ``.halfstep`` file.

    halfstep, torch: the versions that wrote it.
    cls: the name of the model's class, for a reader; it is never looked up.
    engine: the name of the engine that ran it, None where no program is calibrated.
    calibrated: on how many batches.
    extra: the texts that were saved with it.
    recipe_name, recipe_text: the recipe for a reader; empty where none was given.
    """

    halfstep: str
    torch: str
    cls: str
    engine: str | None
    calibrated: int
    extra: Mapping[str, str]
    recipe_name: str
    recipe_text: str
    recipe_plain: Any
    tensors: Mapping[str, StoredTensor]
    copies: Mapping[str, str]
    modules: tuple[ModuleRecord, ...]
    regions: Mapping[str, Mapping[str, Any]]

    @cached_property
    def recipe(self) -> Recipe | None:
        """The recipe; None where none was given, or one that names objects of a process.

        Raises ``ArgumentError`` when it names a class that is not loaded here.
        """
        return None if self.recipe_plain is None else Recipe.from_dict(self.recipe_plain)

    def build(self, model: nn.Module | None = None, *, engine: Engine | None = None) -> nn.Module:
        """The model; ``engine`` runs its calibrated programs.

        model: an object of the user's class, to be copied and filled; needed where only parts of
        the model are programs.

        Raises ``ArgumentError`` where it is needed or of another kind than the file's,
        ``FileFormatError`` where the file is not in order.
        """
        if model is None and "" not in self.regions:
            raise ArgumentError(
                f"only parts of this {self.cls} are programs ({', '.join(self.regions)}), and the "
                "code between them is not in the file: give the float model as model="
            )
        load = _once(self.tensors, self.copies)
        parts = {path: _parts(region, load) for path, region in self.regions.items()}
        if model is not None:
            made = filled(model, self.modules, load)
            install(made, parts, engine)
            return made
        made = rebuilt(self.modules, load)
        try:
            self._put_signatures(made)
            install(made, parts, engine)
        except (HalfstepError, AttributeError) as error:
            raise FileFormatError(f"its programs do not fit its modules: {error}") from error
        return made

    def _put_signatures(self, made: nn.Module) -> None:
        for path, region in self.regions.items():
            forward = StoredForward(signature_from_plain(region["signature"]))
            vars(made.get_submodule(path))["forward"] = forward

    def about(self) -> tuple[str, ...]:
        """What the file is, in lines for people."""
        made = f" by {self.recipe_name}" if self.recipe_name else ""
        plural = "" if self.calibrated == 1 else "es"
        seen = f", calibrated on {self.calibrated} batch{plural}" if self.calibrated else ""
        engine = f", for the engine {self.engine}" if self.engine else ""
        steps = ", ".join(
            f"{path or 'the whole model'} ({_steps(region)} steps)"
            for path, region in self.regions.items()
        )
        return (
            f"{self.cls}, quantized{made}{seen}{engine}",
            f"programs: {steps}",
            f"written by Halfstep {self.halfstep} with torch {self.torch}",
        )


def read_safe_file(path: Path) -> TensorFile:
    """The tensors of a safetensors file; of a model's also what it is, its checksum checked.

    Raises ``FileFormatError`` for a file that is truncated, corrupt, or of a newer Halfstep.
    """
    opened = open_safe_file(path)
    if MODEL_KEY not in opened.metadata and SEAL_KEY not in opened.metadata:
        return opened
    read = model_in(opened)
    return replace(opened, kind=MODEL_KIND, about=read.about())


def model_in(opened: TensorFile) -> ModelFile:
    """The model of an opened file.

    Raises ``FileFormatError`` for a file that holds none.
    """
    if MODEL_KEY not in opened.metadata and SEAL_KEY not in opened.metadata:
        raise FileFormatError(
            f"it is a file of tensors ({opened.kind}) without a model: read it with "
            "hs.load_tensors, or give a file of hs.save"
        )
    try:
        about = json.loads(unsqueezed(opened.metadata.get(MODEL_KEY, "")))
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"corrupt: what it says of its model is no JSON: {error}") from error
    version = about.get("format") if isinstance(about, dict) else None
    if isinstance(version, int) and version > MODEL_VERSION:
        raise FileFormatError(
            f"written by a newer Halfstep (format {version}); this one reads {MODEL_VERSION}: "
            "upgrade"
        )
    check_seal(opened.path)
    return _model_file(about, opened.tensors)


def _model_file(about: Any, tensors: Mapping[str, StoredTensor]) -> ModelFile:
    match about:
        case {
            "format": int(),
            "halfstep": str(halfstep),
            "torch": str(torch),
            "class": str(cls),
            "engine": (str() | None) as engine,
            "recipe": (dict() | None) as recipe,
            "calibrated": int(calibrated),
            "extra": dict(extra),
            "modules": list(modules),
            "regions": dict(regions),
        } if regions:
            return ModelFile(
                halfstep,
                torch,
                cls,
                engine,
                calibrated,
                {str(key): str(text) for key, text in extra.items()},
                str((recipe or {}).get("name", "")),
                str((recipe or {}).get("text", "")),
                (recipe or {}).get("plain"),
                tensors,
                _copies(about.get("copies", {}), tensors),
                tuple(map(ModuleRecord.from_plain, modules)),
                {path: _region(path, region) for path, region in regions.items()},
            )
    raise FileFormatError("corrupt: what it says of its model is incomplete")


def _copies(plain: Any, tensors: Mapping[str, StoredTensor]) -> Mapping[str, str]:
    """Which entries that are left out equal which that are there."""
    is_table = isinstance(plain, dict) and all(
        isinstance(source, str) and source in tensors and name not in tensors
        for name, source in plain.items()
    )
    if not is_table:
        raise FileFormatError("corrupt: it names copies of tensors that are not there")
    copies: dict[str, str] = plain
    return copies


def _region(path: str, region: Any) -> Mapping[str, Any]:
    match region:
        case {"signature": list(), "programs": [_, *_]}:
            checked: Mapping[str, Any] = region
            return checked
    raise FileFormatError(f"the region {path[:100]!r} lacks its signature or its programs")


def _parts(region: Mapping[str, Any], load: Callable[[str], Tensor]) -> list[Part]:
    return [part_from_plain(plain, load) for plain in region["programs"]]


def _steps(region: Mapping[str, Any]) -> str:
    counts = []
    for part in region["programs"]:
        match part:
            case {"program": {"steps": list(steps)}}:
                counts.append(len(steps))
            case _:
                raise FileFormatError("a program lacks its steps")
    return " or ".join(map(str, counts))


def _once(
    tensors: Mapping[str, StoredTensor], copies: Mapping[str, str]
) -> Callable[[str], Tensor]:
    """Reads each tensor once, so that tied ones stay one object.

    They are copied out of the mapped file: where it places them, they are not aligned as torch's
    own, and some float kernels then add in another order.
    """
    read: dict[str, Tensor] = {}

    def load(name: str) -> Tensor:
        source = copies.get(name, name)
        if source not in tensors:
            raise FileFormatError(f"its model names the tensor {name[:100]!r}, which is not there")
        if name not in read:
            read[name] = copy.deepcopy(tensors[source].load())
        return read[name]

    return load
