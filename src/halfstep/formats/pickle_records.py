"""What a pickle says, as plain records that have no behaviour."""

from dataclasses import dataclass, field
from typing import TypeAlias

Record: TypeAlias = object
"""None, bool, int, float, str, bytes, list, tuple, or one of the five classes below."""


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A class or function that the pickle names; it is never looked up."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """The dotted name, such as ``collections.OrderedDict``."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pairs:
    """A dict as its list of (key, value): keys chosen by a file are not hashed."""

    pairs: list[tuple[Record, Record]] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """An object that the pickle would have made by calling ``function(*args)``.

    ``state`` is what ``__setstate__`` would have been given, ``items`` and ``elements`` are what
    would have been stored into it as a dict or a list.
    """

    function: Record
    args: tuple[Record, ...]
    state: Record = None
    items: Pairs = field(default_factory=Pairs)
    elements: list[Record] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The dotted name of the function, or "?" where it is itself the result of a call."""
        return self.function.path if isinstance(self.function, Global) else "?"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Persistent:
    """A reference to something outside the pickle, such as a storage."""

    key: Record


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A number of a module that torch's ``state_dict`` gives as a tensor without dimensions."""

    value: float  # or an int of 64 bits
