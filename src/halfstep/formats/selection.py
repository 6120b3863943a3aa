"""Choosing tensors by name or glob."""

import difflib
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final

from halfstep.errors import ArgumentError

MAX_SHOWN: Final = 3


def select(names: Collection[str], patterns: Collection[str]) -> list[str]:
    """The names that match a pattern, in file order; all of them when there is no pattern.

    A pattern is a name itself, or a glob of ``*``, ``?`` and ``[...]``.
    Raises ``ArgumentError``, with the nearest names, for a pattern that matches nothing.

    >>> select(["conv1.weight", "conv1.bias", "fc.weight"], ["*.weight"])
    ['conv1.weight', 'fc.weight']
    """
    if not patterns:
        return list(names)
    for pattern in patterns:
        if pattern not in names and not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(f"no tensor matches {pattern!r}: {_advice(pattern, names)}")
    return [
        name
        for name in names
        if any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _advice(pattern: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(pattern.strip("*"), names, n=MAX_SHOWN, cutoff=0.3)
    if near:
        return f"the nearest names are {', '.join(near)}"
    if not names:
        return "the file holds no tensors"
    more = " and more" if len(names) > MAX_SHOWN else ""
    return f"the file holds {', '.join(list(names)[:MAX_SHOWN])}{more}"
