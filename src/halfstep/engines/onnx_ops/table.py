"""The table itself, and how an operator enters it."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from halfstep.engines.onnx_qdq import QdqGraph
from halfstep.errors import ArgumentError

# Of the graph and the operator's own arguments: what the step brings.
Translation: TypeAlias = Callable[..., Any]

_TABLE: dict[str, Translation] = {}


_Entered = TypeVar("_Entered", bound=Callable[..., Any])


def translates(*names: str) -> Callable[[_Entered], _Entered]:
    """Enter a function under the names of operators, with or without their overload."""

    def enter(function: _Entered) -> _Entered:
        for name in names:
            _TABLE[name] = function
        return function

    return enter


def found(op: str) -> Translation | None:
    """What is entered for an operator, by its overload or else by its name."""
    return _TABLE.get(op) or _TABLE.get(op.rpartition(".")[0])


def refuse(g: QdqGraph, what: str, instead: str) -> ArgumentError:
    """The error for what has no form in ONNX."""
    return ArgumentError(f"{g.layer}: {what} has no form in the ONNX file; {instead}")
