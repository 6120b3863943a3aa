"""What a model takes and returns, as plain data: tuples, lists, dicts and dataclasses of leaves.

A tree is a leaf, or a ``Branch`` with children. In the tree of a program each tensor is a
``Value``; every other leaf stands for itself.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.graph.edges import Edge
from halfstep.spec import QSpec

# Tuples, lists and dicts of these are data; anything else a program would have to guess.
_PLAIN = (type(None), bool, int, float, complex, str, Edge, QSpec)


@dataclass(frozen=True)
class Value:
    """A name for what an input, a parameter or a step brings."""

    name: str


@dataclass(frozen=True)
class Branch:
    """A container: its type, the keys, and for each key what it holds."""

    type: type
    keys: tuple[Any, ...]
    children: tuple[Any, ...]

    def __str__(self) -> str:
        return text(self)


def text(tree: Any) -> str:
    """A tree as a reader of Python would write it.

    >>> from halfstep.graph.trees import Value, text
    >>> text((Value("x"), (1, None), "mean"))
    "(x, (1, None), 'mean')"
    """
    if isinstance(tree, Value):
        return tree.name
    if isinstance(tree, tuple):
        return f"({', '.join(map(text, tree))}{',' if len(tree) == 1 else ''})"
    if not isinstance(tree, Branch):
        return str(tree) if type(tree).__module__.startswith("halfstep") else repr(tree)
    if tree.type in (tuple, list):
        inside = ", ".join(map(text, tree.children))
        return f"[{inside}]" if tree.type is list else f"({inside})"
    items = zip(tree.keys, tree.children, strict=True)
    if tree.type is dict:
        return f"{{{', '.join(f'{key!r}: {text(child)}' for key, child in items)}}}"
    return f"{tree.type.__name__}({', '.join(f'{key}={text(child)}' for key, child in items)})"


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of a tree or of nested tuples, from left to right."""
    if isinstance(tree, Branch):
        tree = tree.children
    if not isinstance(tree, tuple):
        yield tree
        return
    for child in tree:
        yield from leaves(child)


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """The same tree with ``function`` of each leaf."""
    if isinstance(tree, Branch):
        return dataclasses.replace(tree, children=mapped(tree.children, function))
    if isinstance(tree, tuple):
        return tuple(mapped(child, function) for child in tree)
    return function(tree)


def split(tree: Any) -> Any:
    """Python containers as branches, down to what is none.

    Raises ``ArgumentTypeError`` for a packed sequence, whose lengths are data.
    """
    if isinstance(tree, PackedSequence):
        raise ArgumentTypeError(
            "a packed sequence is passed, whose lengths are data: pad to one length instead"
        )
    if isinstance(tree, Value):
        return tree
    kind = type(tree)
    if isinstance(tree, Mapping) and hasattr(tree, "keys"):
        keys: tuple[Any, ...] = tuple(tree.keys())
        items = [tree[key] for key in keys]
    elif isinstance(tree, tuple | list):
        keys = tuple(getattr(tree, "_fields", ())) or tuple(range(len(tree)))
        items = list(tree)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        keys = tuple(field.name for field in dataclasses.fields(tree) if field.init)
        items = [getattr(tree, key) for key in keys]
    else:
        return tree
    return Branch(kind, keys, tuple(split(item) for item in items))


def join(tree: Any) -> Any:
    """The Python containers that ``split`` took apart."""
    if not isinstance(tree, Branch):
        return tree
    children = [join(child) for child in tree.children]
    if issubclass(tree.type, tuple | list) and not hasattr(tree.type, "_fields"):
        return tree.type(children)
    pairs = dict(zip(tree.keys, children, strict=True))
    if tree.type is dict:
        return pairs
    make: Any = tree.type
    if issubclass(tree.type, Mapping) and not dataclasses.is_dataclass(tree.type):
        return make(pairs)
    return make(**pairs)


def is_plain(leaf: Any) -> bool:
    """Whether a leaf that is no tensor can be part of a program."""
    return isinstance(leaf, _PLAIN)


def match(tree: Any, given: Any, where: str = "forward") -> Iterator[tuple[Value, Tensor]]:
    """Each value of ``tree`` with the tensor that stands in its place in ``given``.

    Raises ``ArgumentError`` or ``ArgumentTypeError`` where they differ.
    """
    if isinstance(tree, Value):
        if not isinstance(given, Tensor):
            raise ArgumentTypeError(f"{where} is {given!r}: it was a tensor when captured")
        yield tree, given
    elif isinstance(tree, Branch):
        if not isinstance(given, Branch) or set(tree.keys) != set(given.keys):
            raise ArgumentError(f"{where} is {_shown(given)}: it was {tree} when captured")
        found = dict(zip(given.keys, given.children, strict=True))
        for key, child in zip(tree.keys, tree.children, strict=True):
            yield from match(child, found[key], f"{where}.{key}")
    elif isinstance(given, Tensor) or type(tree) is not type(given) or tree != given:
        raise ArgumentError(
            f"{where} is {_shown(given)}: it was {tree!r} when the model was captured, and the "
            "program holds for that only. Capture the model with the new argument"
        )


def _shown(given: Any) -> str:
    return f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else text(given)
