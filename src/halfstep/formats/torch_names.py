"""The name of every tensor in a checkpoint: the path of keys, attributes and positions to it.

A state dict gives its own keys. A pickled module gives the names that its state dict would have.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from halfstep.errors import FileFormatError
from halfstep.formats.pickle_records import Call, Pairs, Record

MAX_DEPTH: Final = 200
MAX_NAME_BYTES: Final = 1 << 27  # of all names together, parts of paths included

Leaf = TypeVar("Leaf")
_Step: TypeAlias = tuple[str, Record]

_MODULE_TABLES: Final = frozenset(["_parameters", "_buffers", "_modules"])
_ORDERED_DICT: Final = "collections.OrderedDict"
_VERSIONS: Final = "_metadata"  # of the modules of a state dict
_LINEAR_PARAMS: Final = ("weight", "bias")
_CONV_STATE_SIZE: Final = 15
_CONV_STATE: Final = {10: "weight", 11: "bias", 12: "scale", 13: "zero_point"}
_UNPACKED: Final = {
    "_packed_params._packed_params.weight": "weight",
    "_packed_params._packed_params.bias": "bias",
    "_packed_params._packed_weight": "weight",
}


def name_leaves(
    root: Record, read: Callable[[Record], Leaf | None]
) -> tuple[dict[str, Leaf], tuple[str, ...]]:
    """Every leaf below ``root`` by name, and the keys of ``root`` that lead to none.

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
    entries = root if isinstance(root, Pairs) else root.items if isinstance(root, Call) else Pairs()
    others = [k for k, v in _entries(entries) if v is not None and not walk.leaves(v, 1)]
    return named, tuple(others)


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
        if id(record) in self._active or not isinstance(record, _CONTAINERS):
            return []
        self._active.add(id(record))
        found = [
            (self._join(step, path), leaf)
            for step, child in _children(record)
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


_CONTAINERS: Final = (Pairs, list, tuple, Call)
_ENTRY_COST: Final = 32  # what one entry of a list costs besides its text


def _children(record: Record) -> Iterator[_Step]:
    if isinstance(record, Pairs):
        yield from _entries(record)
    elif isinstance(record, list | tuple):
        yield from ((str(place), child) for place, child in enumerate(record))
    elif isinstance(record, Call):
        yield from _entries(record.items)
        yield from ((str(place), child) for place, child in enumerate(record.elements))
        inside = [*_state(record), *_arguments(record)]
        yield from (step for step in inside if isinstance(step[1], _CONTAINERS))


def _arguments(record: Call) -> Iterator[_Step]:
    """What an object was made from; Python 2 made an ordered dict from a list of pairs."""
    first = record.args[0] if len(record.args) == 1 else None
    if record.path == _ORDERED_DICT and isinstance(first, list):
        items = (item for item in first if isinstance(item, list | tuple) and len(item) == 2)
        yield from _entries(Pairs([(key, value) for key, value in items]))
    else:
        yield from (("", child) for child in record.args)


def _entries(record: Pairs) -> Iterator[_Step]:
    for place, (key, value) in enumerate(record.pairs):
        name = str(key) if isinstance(key, str | int) else f"<key {place}>"
        if name.endswith("_packed_params") and isinstance(value, tuple) and len(value) == 2:
            yield from (
                (f"{name}.{part}", v) for part, v in zip(_LINEAR_PARAMS, value, strict=True)
            )
        else:
            yield name, value


def _state(record: Call) -> Iterator[_Step]:
    """The attributes of an object, with the names that ``state_dict`` would give them."""
    state = record.state
    if isinstance(state, Pairs):
        for name, value in _entries(state):
            if (record.path, name) != (_ORDERED_DICT, _VERSIONS):
                yield "" if name in _MODULE_TABLES else name, value
    elif record.path == "torch.ScriptObject" and isinstance(state, tuple) and len(state) == 2:
        yield from _script_state(*state)
    elif record.path.endswith("PackedParamsBase"):
        yield from _script_state(state, record.path)
    elif isinstance(state, tuple) and len(state) == _CONV_STATE_SIZE:
        yield from ((_CONV_STATE.get(place, str(place)), v) for place, v in enumerate(state))
    else:
        yield "", state


def _script_state(state: Record, kind: Record) -> Iterator[_Step]:
    """The packed parameters that torch's quantized modules keep in C++ objects."""
    name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    match name, state:
        case "LinearPackedParamsBase", (weight, bias):
            yield from zip(_LINEAR_PARAMS, (weight, bias), strict=True)
        case "EmbeddingPackedParamsBase", (_, [weight], *_):
            yield "", weight
        case _:
            yield "", state
