"""The types of what a model returns, from their names, without importing or running anything."""

import dataclasses
import sys
from typing import Any, Final

from halfstep.errors import FileFormatError

# How the instances of a type are made from their parts; what such a type must be.
KINDS: Final = ("dataclass", "namedtuple", "mapping", "tuple", "list")


class Fields(dict[str, Any]):
    """The fields of a value whose class is not loaded, by key and as attributes.

    A program that returns a dataclass or a named tuple returns this where the module that defines
    the class has not been imported: a file imports nothing.

    >>> Fields(logits=3).logits
    3
    """

    def __getattr__(self, name: str) -> Any:
        """The field of that name."""
        if name not in self:
            raise AttributeError(f"there is no field {name!r}: there are {', '.join(self)}")
        return self[name]


def kind_of(cls: type) -> str:
    """How instances of a container type are made: one of ``KINDS``.

    >>> import collections
    >>> kind_of(collections.OrderedDict)
    'mapping'
    """
    if issubclass(cls, tuple | list) and not hasattr(cls, "_fields"):
        return "list" if issubclass(cls, list) else "tuple"
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    return "namedtuple" if issubclass(cls, tuple) else "mapping"


def name_of(cls: type) -> str:
    """The name by which ``class_named`` finds a class again.

    >>> import collections
    >>> name_of(collections.OrderedDict)
    'collections:OrderedDict'
    """
    return f"{cls.__module__}:{cls.__qualname__}"


def class_named(name: str, kind: str, keys: tuple[Any, ...]) -> type:
    """The class of that name if it is loaded and of that kind and fields, else a plain stand-in.

    Raises ``FileFormatError`` for an unknown kind.

    >>> class_named("collections:OrderedDict", "mapping", ("a",))
    <class 'collections.OrderedDict'>
    >>> class_named("no.such.module:Output", "dataclass", ("logits",))
    <class 'halfstep.formats.tree_types.Fields'>
    """
    if kind not in KINDS:
        raise FileFormatError(
            f"a container is of the unknown kind {kind!r:.50}: allowed are {', '.join(KINDS)}"
        )
    found = _loaded(name)
    if found is not None and _is_of(found, kind, keys):
        return found
    return {"tuple": tuple, "list": list, "mapping": dict}.get(kind, Fields)


def _loaded(name: str) -> type | None:
    """The class, looked up in dictionaries alone: no import, no attribute hook of a module."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None


def _is_of(cls: type, kind: str, keys: tuple[Any, ...]) -> bool:
    if kind == "dataclass" and dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls) if field.init} == set(keys)
    if kind == "namedtuple":
        return issubclass(cls, tuple) and getattr(cls, "_fields", None) == keys
    if kind == "mapping":  # of other mappings, making one may open what its argument names
        return issubclass(cls, dict)
    base = {"tuple": tuple, "list": list}.get(kind)
    return base is not None and issubclass(cls, base) and not hasattr(cls, "_fields")
