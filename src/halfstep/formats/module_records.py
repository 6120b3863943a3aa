"""The modules of a model with the names of their tensors, as JSON and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from halfstep.errors import FileFormatError
from halfstep.tensor import QTensor

MAX_MODULE_DEPTH: Final = 200
# What a module is made of; a tensor of such a name would take its place.
_TAKEN: Final = frozenset({*vars(nn.Module()), *dir(object), "_original_class"})
_TABLES: Final = ("parameters", "buffers", "attributes")


# Elements; a name costs as much as a few of them.
_WORTH_LEAVING_OUT: Final = 8


def _same_bits(one: Tensor, other: Tensor) -> bool:
    a, b = one.detach().contiguous(), other.detach().contiguous()
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


class Entries:
    """Tensors that go into one file, each once, under names of their own.

    >>> import torch
    >>> entries, x = Entries(), torch.ones(1)
    >>> entries.keep("a", x), entries.keep("b", x), entries.keep("a", torch.ones(2))
    ('a', 'a', 'a.1')
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}

    def keep(self, name: str, tensor: Tensor) -> str:
        """The name of the entry: the one it has already, or ``name`` if that is free."""
        known = self._names.get(id(tensor))
        if known is not None:
            return known
        free, number = name, 0
        while free in self.tensors:
            number += 1
            free = f"{name}.{number}"
        self.tensors[free] = tensor
        self._names[id(tensor)] = free
        return free

    def leave_out_copies(self) -> dict[str, str]:
        """Drop plain tensors that equal an earlier one, as folded batch norms do many times.

        Returns the entry that each one dropped is a copy of.
        """
        firsts: dict[Any, list[str]] = {}
        copies: dict[str, str] = {}
        for name, tensor in self.tensors.items():
            if isinstance(tensor, QTensor) or tensor.numel() < _WORTH_LEAVING_OUT:
                continue
            alike = firsts.setdefault((tensor.dtype, tensor.shape, tensor.device), [])
            first = next((one for one in alike if _same_bits(self.tensors[one], tensor)), None)
            if first is None:
                alike.append(name)
            else:
                copies[name] = first
        for name in copies:
            del self.tensors[name]
        return copies


@dataclass(frozen=True)
class ModuleRecord:
    """One module: its tensors by name, as the entries of the file, None where there is none.

    same: the path at which the same module stood before; nothing else is given then.
    trainable: the parameters that take gradients.
    transient: the buffers that are no part of the state dict.
    attributes: tensors that programs read and that are neither.
    """

    path: str
    same: str | None = None
    cls: str = "Module"
    training: bool = False
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    buffers: Mapping[str, str | None] = field(default_factory=dict)
    attributes: Mapping[str, str | None] = field(default_factory=dict)
    trainable: tuple[str, ...] = ()
    transient: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The record as JSON values; what is empty is left out."""
        if self.same is not None:
            return {"path": self.path, "same": self.same}
        plain: dict[str, Any] = {"path": self.path, "class": self.cls, "training": self.training}
        tables = {name: dict(getattr(self, name)) for name in _TABLES}
        lists = {"trainable": list(self.trainable), "transient": list(self.transient)}
        return plain | {name: content for name, content in {**tables, **lists}.items() if content}

    @classmethod
    def from_plain(cls, plain: Any) -> "ModuleRecord":
        """The inverse of ``to_plain``; ``FileFormatError`` for anything else."""
        match plain:
            case {"path": str(path), "same": str(same)} if len(plain) == 2:
                return cls(path, same)
            case {"path": str(path), "class": str(name), "training": bool(training), **rest}:
                tables = {key: _table(rest.pop(key, {}), path) for key in _TABLES}
                trainable, transient = (
                    _names(rest.pop(key, []), path) for key in ("trainable", "transient")
                )
                if not rest:
                    return cls(
                        path,
                        None,
                        name,
                        training,
                        **tables,
                        trainable=trainable,
                        transient=transient,
                    )
        raise FileFormatError(f"a module is not readable: {str(plain)[:200]}")


def _table(plain: Any, path: str) -> dict[str, str | None]:
    is_table = isinstance(plain, dict) and all(
        entry is None or isinstance(entry, str) for entry in plain.values()
    )
    if not is_table or any(not name or "." in name or name in _TAKEN for name in plain):
        raise FileFormatError(f"the tensors of module {path[:100]!r} are no names and entries")
    table: dict[str, str | None] = plain
    return table


def _names(plain: Any, path: str) -> tuple[str, ...]:
    if not isinstance(plain, list) or not all(isinstance(name, str) for name in plain):
        raise FileFormatError(f"module {path[:100]!r} has a list that is no names")
    return tuple(plain)


def records_of(
    model: nn.Module, entries: Entries, attributes: Mapping[str, set[str]]
) -> list[ModuleRecord]:
    """A record of each module, parents first; their tensors go into ``entries``.

    attributes: by path of a module, the tensors that are neither parameters nor buffers.
    """
    seen: dict[int, str] = {}
    records = []
    for path, module in model.named_modules(remove_duplicate=False):
        if id(module) in seen:
            records.append(ModuleRecord(path, seen[id(module)]))
            continue
        seen[id(module)] = path
        own = {name: vars(module)[name] for name in sorted(attributes.get(path, ()))}
        records.append(_record(path, module, own, entries))
    return records


def _record(
    path: str, module: nn.Module, attributes: Mapping[str, Tensor], entries: Entries
) -> ModuleRecord:
    def stored(tensors: Mapping[str, Tensor | None]) -> dict[str, str | None]:
        return {
            name: None if tensor is None else entries.keep(_joined(path, name), tensor)
            for name, tensor in tensors.items()
        }

    trains = [name for name, p in module._parameters.items() if p is not None and p.requires_grad]
    return ModuleRecord(
        path,
        None,
        str(module._get_name()),
        module.training,
        stored(module._parameters),
        stored(module._buffers),
        stored(attributes),
        tuple(trains),
        tuple(sorted(module._non_persistent_buffers_set)),
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
