"""Sizes, and what Python computes with them: tensors of shape (1,)."""

from collections.abc import Sequence
from typing import Any

import torch

from halfstep.engines.onnx_graph import Number, Ref
from halfstep.engines.onnx_ops.elementwise import floor_divided
from halfstep.engines.onnx_ops.table import translates
from halfstep.engines.onnx_qdq import QdqGraph

_ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "mod": "Mod", "pow": "Pow"}
_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual"}
_COMPARISONS |= {"gt": "Greater", "ge": "GreaterOrEqual"}


def _number(ref: Ref) -> Number:
    return Number(ref.name, ref.dtype, (1,))


def _refs(g: QdqGraph, *values: Any) -> list[Ref]:
    """The numbers as tensors of shape (1,), all integers or all floats."""
    floats = any(
        isinstance(v, float) or (isinstance(v, Ref) and v.dtype.is_floating_point) for v in values
    )
    dtype = torch.float32 if floats else torch.int64
    return [
        g.cast(v, dtype) if isinstance(v, Ref) else g.constant(torch.tensor([v], dtype=dtype))
        for v in values
    ]


def _enter() -> None:
    for name, op in _ARITHMETIC.items():
        translates(f"operator.{name}")(lambda g, x, y, _op=op: _number(g.op(_op, *_refs(g, x, y))))
    for name, op in _COMPARISONS.items():
        translates(f"operator.{name}")(
            lambda g, x, y, _op=op: _number(g.op(_op, *_refs(g, x, y), dtype=torch.bool))
        )


_enter()


@translates("aten.sym_size")
def size(g: QdqGraph, x: Ref, dim: int) -> "int | Number":
    """How many elements an axis has."""
    return g.size(x, dim)


@translates("aten.sym_numel")
def numel(g: QdqGraph, x: Ref) -> Number:
    """How many elements there are."""
    return _number(g.reshape(g.op("Size", x, shape=(), dtype=torch.int64), (1,)))


@translates("operator.floordiv")
def floordiv(g: QdqGraph, x: Any, y: Any) -> Number:
    """``x // y``."""
    a, b = _refs(g, x, y)
    if a.dtype.is_floating_point:
        return _number(g.op("Floor", g.op("Div", a, b)))
    return _number(floor_divided(g, a, b))


@translates("operator.truediv")
def truediv(g: QdqGraph, x: Any, y: Any) -> Number:
    """``x / y``, a float."""
    return _number(g.op("Div", *_refs(g, x, y, 1.0)[:2]))


@translates("operator.ne")
def ne(g: QdqGraph, x: Any, y: Any) -> Number:
    """``x != y``."""
    return _number(g.op("Not", g.op("Equal", *_refs(g, x, y), dtype=torch.bool)))


@translates("operator.neg")
def neg(g: QdqGraph, x: Number) -> Number:
    """``-x``."""
    return _number(g.op("Neg", x))


@translates("operator.abs")
def abs_(g: QdqGraph, x: Number) -> Number:
    """``abs(x)``."""
    return _number(g.op("Abs", x))


@translates("torch.sym_max")
def sym_max(g: QdqGraph, x: Any, y: Any) -> Number:
    """The larger."""
    return _number(g.op("Max", *_refs(g, x, y)))


@translates("torch.sym_min")
def sym_min(g: QdqGraph, x: Any, y: Any) -> Number:
    """The smaller."""
    return _number(g.op("Min", *_refs(g, x, y)))


@translates("torch.sym_sum")
def sym_sum(g: QdqGraph, values: Sequence[Any]) -> Number:
    """The sum of several."""
    total, *rest = _refs(g, *values)
    for value in rest:
        total = g.op("Add", total, value)
    return _number(total)


@translates("torch.sym_not", "operator.not_")
def sym_not(g: QdqGraph, x: Number) -> Number:
    """``not x``."""
    return _number(g.op("Not", x))


@translates("torch.sym_ite")
def sym_ite(g: QdqGraph, condition: Number, x: Any, y: Any) -> Number:
    """``x if condition else y``."""
    a, b = _refs(g, x, y)
    return _number(g.op("Where", condition, a, b, dtype=a.dtype))


@translates("torch.sym_float")
def sym_float(g: QdqGraph, x: Number) -> Number:
    """The number as a float."""
    return _number(g.cast(x, torch.float32))


@translates("torch.sym_int", "math.trunc")
def sym_int(g: QdqGraph, x: Number) -> Number:
    """The number without its fraction."""
    return _number(g.cast(x, torch.int64))


@translates("math.floor")
def floor(g: QdqGraph, x: Number) -> Number:
    """The next integer below."""
    return _number(g.cast(g.op("Floor", g.cast(x, torch.float32)), torch.int64))


@translates("math.ceil")
def ceil(g: QdqGraph, x: Number) -> Number:
    """The next integer above."""
    return _number(g.cast(g.op("Ceil", g.cast(x, torch.float32)), torch.int64))


@translates("math.sqrt")
def sqrt(g: QdqGraph, x: Number) -> Number:
    """The square root."""
    return _number(g.op("Sqrt", g.cast(x, torch.float32)))


@translates("python.round")
def round_(g: QdqGraph, x: Number) -> Number:
    """The nearest integer."""
    return _number(g.cast(g.op("Round", x), torch.int64))
