"""Arguments and outputs of programs as JSON, and back: equal to the last bit.

None, bool, int, text, finite float     themselves
other floats                            {"float": "inf" | "-inf" | "nan"}
complex                                 {"complex": [real, imaginary]}
tuple                                   [...]
Value                                   {"value": name}
TorchName                               {"dtype" | "layout" | "memory_format" | "device": name}
QSpec, Edge                             {"spec": {...}}, {"edge": {...}}
Branch of tuple, list, dict             {"tuple": [...]}, {"list": [...]}, {"dict": [[k, v]]}
Branch of another type                  {"class": name, "kind": kind, "items": [[key, child]]}
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from halfstep.errors import ArgumentTypeError, FileFormatError, HalfstepError
from halfstep.formats.tree_types import class_named, kind_of, name_of
from halfstep.graph.edges import Edge
from halfstep.graph.operators import torch_value
from halfstep.graph.program import TorchName
from halfstep.graph.trees import Branch, Value
from halfstep.spec import QSpec

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 1 << 64
_TORCH_KINDS: Final = ("dtype", "layout", "memory_format", "device")
_BUILT_IN: Final = {"tuple": tuple, "list": list}


def to_plain(tree: Any) -> Any:
    """A tree or an argument as JSON values.

    Raises ``ArgumentTypeError`` for a leaf that no program holds.

    >>> to_plain((Value("x"), float("inf"), TorchName("dtype", "int8"), None))
    [{'value': 'x'}, {'float': 'inf'}, {'dtype': 'int8'}, None]
    """
    if isinstance(tree, Branch):
        return _plain_branch(tree)
    if type(tree) is tuple:
        return [to_plain(child) for child in tree]
    return _plain_object(tree)


def _plain_object(leaf: Any) -> Any:
    match leaf:
        case Value(name):
            return {"value": name}
        case TorchName(kind, name):
            return {kind: name}
        case Edge():
            return {"edge": edge_to_plain(leaf)}
        case QSpec():
            return {"spec": leaf.to_dict()}
    return _plain_leaf(leaf)


def _plain_leaf(leaf: Any) -> Any:
    kind = type(leaf)
    if kind is float and not math.isfinite(leaf):
        return {"float": str(leaf)}
    if kind is complex:
        return {"complex": [to_plain(leaf.real), to_plain(leaf.imag)]}
    if leaf is None or kind in (bool, int, float, str):
        return leaf
    raise ArgumentTypeError(
        f"a program holds a {kind.__name__}, {str(leaf)[:100]}, which no file can hold: allowed "
        "are numbers, text, None, names of torch, and tuples, lists, dicts and dataclasses of them"
    )


def _plain_branch(branch: Branch) -> Any:
    children = [to_plain(child) for child in branch.children]
    for name, cls in _BUILT_IN.items():
        if branch.type is cls:
            return {name: children}
    items = [[to_plain(k), child] for k, child in zip(branch.keys, children, strict=True)]
    if branch.type is dict:
        return {"dict": items}
    return {"class": name_of(branch.type), "kind": kind_of(branch.type), "items": items}


def from_plain(plain: Any, depth: int = 0) -> Any:
    """The inverse of ``to_plain``.

    Raises ``FileFormatError`` for anything that ``to_plain`` does not write.

    >>> from_plain([{"value": "x"}, {"float": "-inf"}])
    (Value(name='x'), -inf)
    """
    if depth > MAX_DEPTH:
        raise FileFormatError(f"its values nest deeper than {MAX_DEPTH} levels")
    if isinstance(plain, list):
        return tuple(from_plain(child, depth + 1) for child in plain)
    if isinstance(plain, dict):
        return _tagged(plain, depth)
    if isinstance(plain, int) and abs(plain) >= MAX_INTEGER:
        raise FileFormatError(f"it holds an integer of {plain.bit_length()} bits: at most 64 fit")
    return plain


def _tagged(plain: dict[str, Any], depth: int) -> Any:
    if set(plain) == {"class", "kind", "items"}:
        return _class_branch(plain, depth)
    if len(plain) != 1:
        raise FileFormatError(f"it holds a value of an unknown form: {str(plain)[:100]}")
    ((tag, content),) = plain.items()
    if tag in _TORCH_KINDS:
        return _torch_name(tag, content)
    if tag not in _READERS:
        raise FileFormatError(f"it holds a value of the unknown kind {tag!r:.50}")
    return _READERS[tag](content, depth)


def _float(content: Any, depth: int) -> float:
    if content not in ("inf", "-inf", "nan"):
        raise FileFormatError(f"{str(content)[:50]!r} is no float that JSON lacks")
    return float(content)


def _complex(content: Any, depth: int) -> complex:
    parts = from_plain(content, depth + 1)
    match parts:
        case (float() as real, float() as imaginary):
            return complex(real, imaginary)
    raise FileFormatError(f"{str(content)[:50]} is no pair of floats")


def _value(content: Any, depth: int) -> Value:
    return Value(checked_text(content, "the name of a value"))


def _sequence(cls: type) -> Callable[[Any, int], Branch]:
    def read(content: Any, depth: int) -> Branch:
        children = from_plain(_list(content), depth + 1)
        return Branch(cls, tuple(range(len(children))), children)

    return read


def _dict(content: Any, depth: int) -> Branch:
    return Branch(dict, *_items(content, depth))


def _class_branch(plain: dict[str, Any], depth: int) -> Branch:
    keys, children = _items(plain["items"], depth)
    name, kind = (
        checked_text(plain[key], f"the {key} of a container") for key in ("class", "kind")
    )
    return Branch(class_named(name, kind, keys), keys, children)


def _items(content: Any, depth: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    pairs = [from_plain(pair, depth + 1) for pair in _list(content)]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise FileFormatError("the items of a container are no pairs")
    keys = tuple(key for key, _ in pairs)
    is_simple = all(key is None or isinstance(key, bool | int | float | str) for key in keys)
    if not is_simple or len(set(keys)) != len(keys):
        raise FileFormatError("the keys of a container are no names or numbers, or occur twice")
    return keys, tuple(child for _, child in pairs)


def _torch_name(kind: str, content: Any) -> TorchName:
    name = TorchName(kind, checked_text(content, f"a {kind}"))
    try:
        if kind != "device" and name.name not in vars(torch):
            raise FileFormatError(f"torch has no {kind} {name.name[:50]}")
        torch_value(name)
    except (HalfstepError, RuntimeError) as error:
        raise FileFormatError(str(error)) from error
    return name


def edge_to_plain(edge: Edge) -> dict[str, Any]:
    """An edge as JSON values; its float32 scale comes back in every bit."""
    return edge.to_dict()


def edge_from_plain(plain: Any) -> Edge:
    """The edge, checked: a positive finite scale, and a zero point among its codes.

    Raises ``FileFormatError`` for anything else.
    """
    match plain:
        case {"spec": dict(spec), "scale": float(scale), "zero_point": int(zero_point)} if (
            len(plain) == 3 and 0 < scale < math.inf and not isinstance(zero_point, bool)
        ):
            try:
                edge = Edge(_spec(spec), scale, zero_point)
            except HalfstepError as error:
                raise FileFormatError(str(error)) from error
            if edge.qmin <= zero_point <= edge.qmax:
                return edge
    raise FileFormatError(
        "an edge needs 'spec', a positive 'scale' and a 'zero_point' among its codes, and is "
        f"{str(plain)[:200]}"
    )


def _spec(content: Any, depth: int = 0) -> QSpec:
    if not isinstance(content, Mapping):
        raise FileFormatError(f"a format is no object: {str(content)[:100]}")
    try:
        return QSpec.from_dict(content)
    except (HalfstepError, TypeError) as error:
        raise FileFormatError(f"a quantization format is not readable: {error}") from error


def _list(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise FileFormatError(f"a container holds no list: {str(content)[:50]}")
    return content


def checked_text(content: Any, what: str) -> str:
    """The text; ``FileFormatError`` where it is something else."""
    if not isinstance(content, str):
        raise FileFormatError(f"{what} is no text: {str(content)[:50]}")
    return content


_READERS: Final[dict[str, Callable[[Any, int], Any]]] = {
    "float": _float,
    "complex": _complex,
    "value": _value,
    "tuple": _sequence(tuple),
    "list": _sequence(list),
    "dict": _dict,
    "spec": _spec,
    "edge": lambda content, depth: edge_from_plain(content),
}
