"""The name of every tensor in a checkpoint: the path of keys, attributes and positions to it.

A state dict gives its own keys. A pickled module gives the names that its state dict would have.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from halfstep.errors import FileFormatError
from halfstep.formats.pickle_records import Call, Pairs, Record
from halfstep.formats.torch_children import CONTAINERS, children, entries

MAX_DEPTH: Final = 200
MAX_NAME_BYTES: Final = 1 << 27  # of all names together, parts of paths included

Leaf = TypeVar("Leaf")

_UNPACKED: Final = {
    "_packed_params._packed_params.weight": "weight",
    "_packed_params._packed_params.bias": "bias",
    "_packed_params._packed_weight": "weight",
}


def name_leaves(
    root: Record, read: Callable[[Record], Leaf | None]
) -> tuple[dict[str, Leaf], tuple[str, ...]]:
    """Every leaf below ``root`` by name, and the keys (or positions) in it that lead to none.

    Where ``root`` is itself a number, a text or an object without tensors, the second is its type.

    ``read`` says what is a leaf: None for anything else. Shared containers are named at each place
    where they occur, cycles are cut. A name that occurs again gets ``#2`` appended.
    Raises ``FileFormatError`` when records nest deeper than ``MAX_DEPTH`` or expand to names of
    more than ``MAX_NAME_BYTES`` in all.

    >>> from halfstep.formats.pickle_records import Global
    >>> root = Pairs([("a", [Global("m", "x"), Global("m", "y")]), ("epoch", 3)])
    >>> name_leaves(root, lambda record: record.name if isinstance(record, Global) else None)
    ({'a.0': 'x', 'a.1': 'y'}, ('epoch',))
    """
    walk = _Walk(read)
    named: dict[str, Leaf] = {}
    seen: Counter[str] = Counter()
    for path, leaf in walk.leaves(root, 0):
        name = _unpacked(path, named) or "tensor"
        unique = name
        while unique in named:
            seen[name] += 1
            unique = f"{name}#{seen[name] + 1}"
        named[unique] = leaf
    others = [k for k, v in _outermost(root) if v is not None and not walk.leaves(v, 1)]
    return named, tuple(others)


def _outermost(root: Record) -> Iterator[tuple[str, Record]]:
    """What ``root`` holds by key or position, or ``root`` itself under the name of its type."""
    if isinstance(root, Pairs):
        yield from entries(root)
    elif isinstance(root, list | tuple):
        yield from children(root)
    elif isinstance(root, Call) and (root.items.pairs or root.elements):
        yield from entries(root.items)
        yield from children(root.elements)
    else:
        yield (root.path if isinstance(root, Call) else type(root).__name__), root


def _unpacked(path: str, named: Mapping[str, object]) -> str:
    """``fc.weight`` for ``fc._packed_params._packed_params.weight``, where that is still free."""
    for ending, short in _UNPACKED.items():
        if path == ending or path.endswith(f".{ending}"):
            plain = path.removesuffix(ending) + short
            return path if plain in named else plain
    return path


class _Walk(Generic[Leaf]):
    """Names relative to each container, made once per container, so that time stays linear."""

    def __init__(self, read: Callable[[Record], Leaf | None]) -> None:
        self._read = read
        self._done: dict[int, list[tuple[str, Leaf]]] = {}
        self._active: set[int] = set()
        self._budget = MAX_NAME_BYTES

    def leaves(self, record: Record, depth: int) -> list[tuple[str, Leaf]]:
        known = self._done.get(id(record))
        if known is not None:
            return known
        if depth > MAX_DEPTH:
            raise FileFormatError(f"its records nest deeper than {MAX_DEPTH} levels")
        leaf = self._read(record)
        if leaf is not None:
            return [("", leaf)]
        if id(record) in self._active or not isinstance(record, CONTAINERS):
            return []
        self._active.add(id(record))
        found = [
            (self._join(step, path), leaf)
            for step, child in children(record)
            for path, leaf in self.leaves(child, depth + 1)
        ]
        self._active.discard(id(record))
        self._done[id(record)] = found
        return found

    def _join(self, step: str, path: str) -> str:
        self._budget -= len(step) + len(path) + _ENTRY_COST
        if self._budget < 0:
            raise FileFormatError(
                f"its records expand to more than {MAX_NAME_BYTES} bytes of tensor names"
            )
        return f"{step}.{path}" if step and path else step or path


_ENTRY_COST: Final = 32  # what one entry of a list costs besides its text
