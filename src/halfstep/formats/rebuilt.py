"""A model from a file: modules without their classes, or put into an object of the user's."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, FileFormatError
from halfstep.formats.module_records import MAX_MODULE_DEPTH, ModuleRecord

Load = Callable[[str], Tensor]


class LoadedModule(nn.Module):
    """A module of a model that was loaded without its class: its tensors, and its programs.

    It prints as the class of the saved module, and has the same names of parameters, buffers and
    submodules. What a program computed runs as ever; the Python of its class is not in the file.

    Raises ``ArgumentError`` when a module is called that has no program of its own.
    """

    def __init__(self, original: str) -> None:
        super().__init__()
        self._original_class = original

    def _get_name(self) -> str:
        return self._original_class

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: only a module with a program can be called."""
        raise ArgumentError(
            f"this {self._original_class} runs as a part of the whole model only, since the code "
            "of its class is not in the file: call the model, or load the file with model="
        )


def rebuilt(records: Sequence[ModuleRecord], load: Load) -> LoadedModule:
    """The modules of the records as one model.

    Raises ``FileFormatError`` for records that are no tree.
    """
    wrap = _Wrapped(load)
    made: dict[str, LoadedModule] = {}
    for record in records:
        is_new = record.path not in made and record.path.count(".") < MAX_MODULE_DEPTH
        owner, _, name = record.path.rpartition(".")
        if not is_new or (made and (not name or owner not in made)) or (not made and record.path):
            raise FileFormatError(f"module {record.path[:100]!r} has no place in its model")
        if record.same is not None and record.same not in made:
            raise FileFormatError(f"module {record.path[:100]!r} is the same as none before it")
        module = LoadedModule(record.cls) if record.same is None else made[record.same]
        if made:
            made[owner]._modules[name] = module
        made[record.path] = module
        _put_tensors(module, record, wrap)
    if not made:
        raise FileFormatError("it holds no module")
    return made[""]


def filled(model: nn.Module, records: Sequence[ModuleRecord], load: Load) -> nn.Module:
    """A copy of the user's model with the tensors of the records.

    Raises ``ArgumentError`` where the model has other modules, tensors or shapes than the file.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"model is a {type(model).__name__}: give the float nn.Module")
    twin = copy.deepcopy(model)
    modules = dict(twin.named_modules(remove_duplicate=False))
    _check_same("modules", set(modules), {record.path for record in records}, "the model")
    wrap = _Wrapped(load)
    for record in records:
        if record.same is None:
            module = modules[record.path]
            _check_tensors(module, record, wrap)
            _put_tensors(module, record, wrap)
    return twin


class _Wrapped:
    """The tensors of a file as parameters and buffers; tied ones stay one object."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._parameters: dict[str, nn.Parameter] = {}

    def parameter(self, entry: str, *, trains: bool) -> nn.Parameter:
        """The parameter of an entry.

        Raises ``FileFormatError`` where it cannot take gradients and should.
        """
        if entry not in self._parameters:
            tensor = self.load(entry)
            try:
                self._parameters[entry] = nn.Parameter(tensor, requires_grad=trains)
            except RuntimeError as error:
                raise FileFormatError(f"{entry[:100]!r} is no parameter: {error}") from error
        return self._parameters[entry]


def _put_tensors(module: nn.Module, record: ModuleRecord, wrap: _Wrapped) -> None:
    if record.same is not None:
        return
    for name, entry in record.parameters.items():
        trains = name in record.trainable
        module._parameters[name] = None
        if entry is not None:  # not past the module, which may keep lists of its parameters
            setattr(module, name, wrap.parameter(entry, trains=trains))
    for name, entry in record.buffers.items():
        module._buffers[name] = None if entry is None else wrap.load(entry)
    module._non_persistent_buffers_set.update(record.transient)
    for name, entry in record.attributes.items():
        known = vars(module).get(name)
        if entry is None or (known is not None and not isinstance(known, Tensor)):
            raise FileFormatError(f"{name[:100]!r} is no tensor of module {record.path[:100]!r}")
        vars(module)[name] = wrap.load(entry)
    module.training = record.training


def _check_tensors(module: nn.Module, record: ModuleRecord, wrap: _Wrapped) -> None:
    where = record.path or "the model"
    for table, stored in (
        (module._parameters, record.parameters),
        (module._buffers, record.buffers),
    ):
        _check_same("tensors", set(table), set(stored), where)
        for name, entry in stored.items():
            own = table[name]
            shapes = [
                None if own is None else tuple(own.shape),
                None if entry is None else tuple(wrap.load(entry).shape),
            ]
            if shapes[0] != shapes[1]:
                raise ArgumentError(
                    f"{where} has {name} of shape {shapes[0]}, and the file of {shapes[1]}: give "
                    "the model that was quantized, with the same sizes"
                )


def _check_same(what: str, own: set[str], stored: set[str], where: str) -> None:
    if own != stored:
        lacks, more = (sorted(names)[:5] for names in (stored - own, own - stored))
        parts = [f"lacks {', '.join(lacks)}"] if lacks else []
        parts += [f"has {', '.join(more)} besides"] if more else []
        raise ArgumentError(
            f"{where} has other {what} than the file: it {' and '.join(parts)}. Give the model "
            "that was quantized, of the same class and sizes"
        )
