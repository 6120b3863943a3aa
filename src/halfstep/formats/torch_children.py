"""What is inside a record, each part with the name that torch would give it.

A pickled module keeps its parts in tables, and torch's quantized modules keep numbers and tensors
where no table has them; both are named here as ``state_dict`` names them, and in its order.
"""

import re
from collections.abc import Iterator
from typing import Final, TypeAlias, TypeGuard

from halfstep.formats.pickle_records import Call, Number, Pairs, Record

Step: TypeAlias = tuple[str, Record]

_OWN_TABLES: Final = ("_parameters", "_buffers")
_MODULE_TABLES: Final = (*_OWN_TABLES, "_modules")
_ORDERED_DICT: Final = "collections.OrderedDict"
_GRAPH_MODULE: Final = "torch.fx.graph_module.reduce_"  # builds a module from its attributes
_VERSIONS: Final = "_metadata"  # of the modules of a state dict
_LINEAR_PARAMS: Final = ("weight", "bias")
_CONV_STATE_SIZE: Final = 15
_CONV_STATE: Final = {10: "weight", 11: "bias", 12: "scale", 13: "zero_point"}
_QUANTIZED_MODULE: Final = re.compile(r"(__torch__\.)?torch\.(ao\.)?nn\.(\w+\.)?quantized\.")
_OUTPUT: Final = ("scale", "zero_point")  # plain numbers of a module, tensors of its state dict
CONTAINERS: Final = (Pairs, list, tuple, Call)


def children(record: Record) -> Iterator[Step]:
    """What is directly inside a record, with the part of a name that each adds.

    >>> list(children([True, "x"]))
    [('0', True), ('1', 'x')]
    """
    if isinstance(record, Pairs):
        yield from entries(record)
    elif isinstance(record, list | tuple):
        yield from ((str(place), child) for place, child in enumerate(record))
    elif isinstance(record, Call):
        yield from entries(record.items)
        yield from ((str(place), child) for place, child in enumerate(record.elements))
        inside = [*_state(record), *_arguments(record)]
        yield from (step for step in inside if isinstance(step[1], (*CONTAINERS, Number)))


def _arguments(record: Call) -> Iterator[Step]:
    """What an object was made from.

    Python 2 made an ordered dict from a list of pairs; a graph module is made from attributes.
    """
    first = record.args[0] if len(record.args) == 1 else None
    if record.path == _ORDERED_DICT and isinstance(first, list):
        items = (item for item in first if isinstance(item, list | tuple) and len(item) == 2)
        yield from entries(Pairs([(key, value) for key, value in items]))
    elif record.path.startswith(_GRAPH_MODULE):
        tables = (table for table in record.args if isinstance(table, Pairs))
        yield from (step for table in tables for step in _attributes(table))
    else:
        yield from (("", child) for child in record.args)


def entries(record: Pairs) -> Iterator[Step]:
    """The entries of a dict; packed parameters of a Linear count as its weight and bias.

    >>> list(entries(Pairs([("a", 1), (2, None), (2.5, "x")])))
    [('a', 1), ('2', None), ('<key 2>', 'x')]
    """
    for place, (key, value) in enumerate(record.pairs):
        name = str(key) if isinstance(key, str | int) else f"<key {place}>"
        if name.endswith("_packed_params") and isinstance(value, tuple) and len(value) == 2:
            yield from (
                (f"{name}.{part}", v) for part, v in zip(_LINEAR_PARAMS, value, strict=True)
            )
        else:
            yield name, value


def _state(record: Call) -> Iterator[Step]:
    """The attributes of an object, with the names that ``state_dict`` would give them."""
    state = record.state
    if isinstance(state, Pairs):
        if record.path == _ORDERED_DICT:
            yield from ((name, value) for name, value in entries(state) if name != _VERSIONS)
        else:
            is_quantized = _QUANTIZED_MODULE.match(record.path) is not None
            yield from _attributes(state, has_output=is_quantized)
    elif record.path == "torch.ScriptObject" and isinstance(state, tuple) and len(state) == 2:
        yield from _script_state(*state)
    elif record.path.endswith("PackedParamsBase"):
        yield from _script_state(state, record.path)
    elif isinstance(state, tuple) and len(state) == _CONV_STATE_SIZE:
        for place, value in enumerate(state):
            name = _CONV_STATE.get(place, str(place))
            yield name, Number(value) if name in _OUTPUT and _is_number(value) else value
    else:
        yield "", state


def _attributes(state: Pairs, *, has_output: bool = False) -> Iterator[Step]:
    """The attributes of a module in the order of its state dict: its own, then its children's.

    has_output: ``scale`` and ``zero_point`` are those of its output, and in the state dict.
    """
    named = list(entries(state))
    numbers = [(name, value) for name, value in named if has_output and name in _OUTPUT]
    yield from (("", table) for name, table in named if name in _OWN_TABLES)
    yield from ((name, Number(value)) for name, value in numbers if _is_number(value))
    for name, value in named:
        if name not in _OWN_TABLES:
            yield "" if name in _MODULE_TABLES else name, value


def _is_number(value: Record) -> TypeGuard[float]:
    if isinstance(value, int) and not isinstance(value, bool):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, float)


def _script_state(state: Record, kind: Record) -> Iterator[Step]:
    """The packed parameters that torch's quantized modules keep in C++ objects."""
    name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    match name, state:
        case "LinearPackedParamsBase", (weight, bias):
            yield from zip(_LINEAR_PARAMS, (weight, bias), strict=True)
        case "EmbeddingPackedParamsBase", (_, [weight], *_):
            yield "", weight
        case _:
            yield "", state
