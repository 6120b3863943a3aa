"""For which sizes a program is right.

While a model is traced, its Python code may ask how large a tensor is, and take a branch. Each
answer is a condition. They are kept as data: a comparison of two expressions over the sizes,

    expression = number | ("size", input, dimension) | (operation, expression, ...)
"""

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from halfstep.errors import ArgumentError

Shapes: TypeAlias = Sequence[Sequence[int]]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "**": operator.pow,
}
_GATHER: dict[str, Callable[[Any], Any]] = {"max": max, "min": min, "and": all, "or": any}
_WRITTEN: dict[type[ast.AST], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Div: "/",
    ast.Pow: "**",
    ast.And: "and",
    ast.Or: "or",
}


@dataclass(frozen=True)
class Condition:
    """A comparison that the sizes of the inputs must satisfy.

    >>> from halfstep.graph.sizes import parse
    >>> condition = parse("L['t'][0].size()[1] % 4 == 0")
    >>> condition.holds([(2, 8)]), condition.holds([(2, 6)])
    (True, False)
    >>> print(condition.text(["image"]))
    image.size(1) % 4 == 0
    """

    left: Any
    compare: str
    right: Any

    def holds(self, shapes: Shapes) -> bool:
        """Whether the sizes satisfy it; a division by zero does not."""
        try:
            return _COMPARE[self.compare](_value(self.left, shapes), _value(self.right, shapes))
        except ZeroDivisionError:
            return False

    @property
    def is_assumed(self) -> bool:
        """Whether it is what tracing takes for granted of a size that it does not fix."""
        is_size = isinstance(self.left, tuple) and self.left[0] == "size"
        return is_size and self.compare == ">=" and bool(self.right == 2)

    def text(self, names: Sequence[str]) -> str:
        """The condition as a reader of Python would write it."""
        return f"{_text(self.left, names)} {self.compare} {_text(self.right, names)}"


def at_least_two(index: int, dimension: int) -> Condition:
    """The condition of every size that tracing does not fix."""
    return Condition(("size", index, dimension), ">=", 2)


def check(conditions: Sequence[Condition], shapes: Shapes, names: Sequence[str]) -> None:
    """Raise ``ArgumentError`` for the first condition that does not hold."""
    for condition in conditions:
        if not condition.holds(shapes):
            given = ", ".join(f"{name} {tuple(s)}" for name, s in zip(names, shapes, strict=True))
            raise ArgumentError(
                f"the inputs are {given}, but the model was captured for "
                f"{condition.text(names)}: capture it with an example of the new sizes"
            )


def parse(code: str) -> Condition:
    """The condition that torch writes as Python code over ``L[...][i].size()[d]``.

    Raises ``ArgumentError`` for anything that is not a comparison of sizes.
    """
    try:
        compare, left, right = _comparison(ast.parse(code, mode="eval").body)
    except (SyntaxError, KeyError):
        raise ArgumentError(
            f"its Python code depends on sizes in a way that is not kept: {code}"
        ) from None
    if isinstance(left, int) and compare == "==":
        left, right = right, left
    return Condition(left, compare, right)


def _comparison(node: ast.AST) -> tuple[str, Any, Any]:
    expression = _expression(node)
    if isinstance(node, ast.BoolOp):
        return ("==", expression, True)
    if not isinstance(node, ast.Compare):
        raise KeyError(ast.dump(node))
    compare, left, right = expression
    return compare, left, right


def _expression(node: ast.AST) -> Any:  # noqa: PLR0911  (one return for each kind of node)
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ("-", 0, _expression(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return (_WRITTEN[type(op)], _expression(left), _expression(right))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=parts):
            return (name, *map(_expression, parts))
        case ast.BoolOp(op=op, values=parts):
            return (_WRITTEN[type(op)], *map(_expression, parts))
        case ast.Compare(left=left, ops=[compare], comparators=[right]):
            return (_WRITTEN[type(compare)], _expression(left), _expression(right))
        case ast.Subscript(
            value=ast.Call(
                func=ast.Attribute(
                    attr="size", value=ast.Subscript(slice=ast.Constant(value=int() as index))
                )
            ),
            slice=ast.Constant(value=int() as dimension),
        ):
            return ("size", index, dimension)
        case _:
            raise KeyError(ast.dump(node))


def _value(expression: Any, shapes: Shapes) -> Any:
    if not isinstance(expression, tuple):
        return expression
    kind, *parts = expression
    if kind == "size":
        return shapes[parts[0]][parts[1]]
    values = [_value(part, shapes) for part in parts]
    if kind in _GATHER:
        return _GATHER[kind](values)
    return (_COMPARE.get(kind) or _COMBINE[kind])(*values)


def _text(expression: Any, names: Sequence[str], *, inside: bool = False) -> str:
    if not isinstance(expression, tuple):
        return str(expression)
    kind, *parts = expression
    if kind == "size":
        return f"{names[parts[0]]}.size({parts[1]})"
    if kind in ("max", "min"):
        return f"{kind}({', '.join(_text(part, names) for part in parts)})"
    if kind == "-" and parts[0] == 0:
        return f"-{_text(parts[1], names, inside=True)}"
    written = f" {kind} ".join(_text(part, names, inside=True) for part in parts)
    return f"({written})" if inside else written
