"""The sizes for which a program is right, as JSON and back."""

from typing import Any, Final

from halfstep.errors import FileFormatError
from halfstep.graph.sizes import Condition

MAX_DEPTH: Final = 64
MAX_EXPONENT: Final = 8
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=")
_BINARY: Final = ("+", "-", "*", "//", "%", "/", "**", *_COMPARISONS)
_GATHERING: Final = ("max", "min", "and", "or")


def condition_to_plain(condition: Condition) -> list[Any]:
    """``[comparison, left, right]``; expressions are nested lists in the same order.

    >>> condition_to_plain(Condition(("%", ("size", 0, 1), 4), "==", 0))
    ['==', ['%', ['size', 0, 1], 4], 0]
    """
    return [condition.compare, _plain(condition.left), _plain(condition.right)]


def _plain(expression: Any) -> Any:
    return [*map(_plain, expression)] if isinstance(expression, tuple) else expression


def condition_from_plain(plain: Any, ranks: list[int]) -> Condition:
    """The condition over inputs of these numbers of dimensions.

    Raises ``FileFormatError`` for what is none, or would take long to evaluate.

    >>> print(condition_from_plain([">=", ["size", 0, 1], 2], [2]).text(["x"]))
    x.size(1) >= 2
    """
    match plain:
        case [str(compare), left, right] if compare in _COMPARISONS:
            return Condition(_expression(left, ranks, 0), compare, _expression(right, ranks, 0))
    raise FileFormatError(f"a condition on sizes is not readable: {str(plain)[:100]}")


def _expression(plain: Any, ranks: list[int], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise FileFormatError(f"a condition on sizes nests deeper than {MAX_DEPTH} levels")
    match plain:
        case int() | float() if abs(plain) < 1 << 64:
            return plain
        case ["size", int(index), int(dimension)] if (
            0 <= index < len(ranks) and 0 <= dimension < ranks[index]
        ):
            return ("size", index, dimension)
        case ["**", base, int(exponent)] if abs(exponent) <= MAX_EXPONENT and "**" not in str(base):
            return ("**", _expression(base, ranks, depth + 1), exponent)
        case [str(kind), left, right] if kind in _BINARY and kind != "**":
            return (kind, *(_expression(part, ranks, depth + 1) for part in (left, right)))
        case [str(kind), _, *_] if kind in _GATHERING:
            return (kind, *(_expression(part, ranks, depth + 1) for part in plain[1:]))
    raise FileFormatError(f"a condition on sizes is not readable: {str(plain)[:100]}")
