"""Operators that combine elements one by one: arithmetic, comparisons, choices."""

from typing import Any, TypeAlias

import torch

from halfstep.engines.onnx_graph import Number, Ref, broadcast
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

# A tensor, or a number of Python.
Term: TypeAlias = "Ref | float"

_UNARY = {
    **{name: name.capitalize() for name in ("abs", "neg", "exp", "log", "sqrt", "erf", "sign")},
    **{name: name.capitalize() for name in ("ceil", "floor", "round", "sin", "cos", "tan")},
    **{name: name.capitalize() for name in ("reciprocal", "sigmoid", "tanh", "relu", "softsign")},
    **{name: name.capitalize() for name in ("atan", "asin", "acos", "sinh", "cosh")},
    "logical_not": "Not",
    "bitwise_not": "Not",
}
_BINARY = {
    "mul": "Mul",
    "maximum": "Max",
    "minimum": "Min",
    "pow": "Pow",
    "max.other": "Max",
    "min.other": "Min",
}
_COMPARISONS = {
    "eq": "Equal",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "lt": "Less",
    "le": "LessOrEqual",
}
_LOGICAL = {
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
    "__and__": "And",
    "__or__": "Or",
    "__xor__": "Xor",
}


def promoted(g: QdqGraph, *terms: Term) -> list[Ref]:
    """The terms in the one dtype that torch would compute in."""
    dtype = _common(terms)
    return [_in(g, term, dtype) for term in terms]


def _in(g: QdqGraph, term: Term, dtype: torch.dtype) -> Ref:
    if isinstance(term, Ref) and not isinstance(term, Number):
        return g.cast(term, dtype)
    return g.number(term, dtype)


def _common(terms: tuple[Term, ...]) -> torch.dtype:
    examples: list[Any] = [_example(term) for term in terms]
    found = examples[0]
    for example in examples[1:]:
        found = torch.empty(_rank(found, example), dtype=torch.result_type(found, example))
    return found.dtype if isinstance(found, torch.Tensor) else torch.float32


def _example(term: Term) -> Any:
    if isinstance(term, Number):
        return 1.0 if term.dtype.is_floating_point else 1
    return torch.empty((1,) * term.rank, dtype=term.dtype) if isinstance(term, Ref) else term


def _rank(one: Any, other: Any) -> tuple[int, ...]:
    return (1,) * max(getattr(one, "ndim", 0), getattr(other, "ndim", 0))


def _enter() -> None:
    """Enter the families of operators that only differ by their name."""
    for name, op in _UNARY.items():
        translates(f"aten.{name}")(lambda g, x, _op=op, **_: g.op(_op, x))
    for name, op in _BINARY.items():
        translates(f"aten.{name}")(lambda g, x, y, _op=op: g.op(_op, *promoted(g, x, y)))
    for table in (_COMPARISONS, _LOGICAL):
        for name, op in table.items():
            translates(f"aten.{name}")(lambda g, x, y, _op=op: _compare(g, _op, x, y))


_enter()


def _compare(g: QdqGraph, op: str, x: Term, y: Term) -> Ref:
    terms = promoted(g, x, y)
    if op in _LOGICAL.values():
        if any(term.dtype != torch.bool for term in terms):
            raise refuse(g, "a bitwise operator on integers", "compute it outside the model")
    elif terms[0].dtype == torch.bool:
        terms = [g.cast(term, torch.int32) for term in terms]
    return g.op(op, *terms, dtype=torch.bool)


@translates("aten.ne")
def not_equal(g: QdqGraph, x: Term, y: Term) -> Ref:
    """Not(Equal)."""
    return g.op("Not", _compare(g, "Equal", x, y))


@translates("aten.add")
def add(g: QdqGraph, x: Term, y: Term, alpha: float = 1) -> Ref:
    """``x + alpha * y``."""
    return _sum(g, "Add", x, y, alpha)


@translates("aten.sub")
def sub(g: QdqGraph, x: Term, y: Term, alpha: float = 1) -> Ref:
    """``x - alpha * y``."""
    return _sum(g, "Sub", x, y, alpha)


@translates("aten.rsub")
def rsub(g: QdqGraph, x: Term, y: Term, alpha: float = 1) -> Ref:
    """``y - alpha * x``."""
    return _sum(g, "Sub", y, x, alpha)


def _sum(g: QdqGraph, op: str, x: Term, y: Term, alpha: float) -> Ref:
    a, b = promoted(g, x, y)
    if alpha != 1:
        b = g.op("Mul", b, g.number(alpha, b.dtype))
    return g.op(op, a, b)


@translates("aten.div", "aten.true_divide", "aten.divide")
def div(g: QdqGraph, x: Term, y: Term, rounding_mode: str | None = None) -> Ref:
    """True division of floats, or rounded down or to zero."""
    terms = promoted(g, x, y)
    if rounding_mode is None and not terms[0].dtype.is_floating_point:
        terms = [g.cast(term, torch.float32) for term in terms]
    if rounding_mode == "floor" and not terms[0].dtype.is_floating_point:
        return floor_divided(g, *terms)
    quotient = g.op("Div", *terms)
    if rounding_mode is None or not quotient.dtype.is_floating_point:
        return quotient
    down = g.op("Floor", g.op("Abs", quotient) if rounding_mode == "trunc" else quotient)
    return down if rounding_mode == "floor" else g.op("Mul", down, g.op("Sign", quotient))


@translates("aten.floor_divide")
def floor_divide(g: QdqGraph, x: Term, y: Term) -> Ref:
    """Division rounded down."""
    return div(g, x, y, "floor")


def floor_divided(g: QdqGraph, x: Ref, y: Ref) -> Ref:
    """Integers divided and rounded down, where ONNX's Div rounds to zero."""
    rest = g.op("Mod", x, y, shape=broadcast(x.shape, y.shape))
    return g.op("Div", g.op("Sub", x, rest), y)


@translates("aten.remainder", "aten.fmod")
def remainder(g: QdqGraph, x: Term, y: Term) -> Ref:
    """What is left, with the sign of the divisor."""
    a, b = promoted(g, x, y)
    if not a.dtype.is_floating_point:
        return g.op("Mod", a, b)
    return g.op("Sub", a, g.op("Mul", g.op("Floor", g.op("Div", a, b)), b))


@translates("aten.square")
def square(g: QdqGraph, x: Ref) -> Ref:
    """``x * x``."""
    return g.op("Mul", x, x)


@translates("aten.rsqrt")
def rsqrt(g: QdqGraph, x: Ref) -> Ref:
    """``1 / sqrt(x)``."""
    return g.op("Reciprocal", g.op("Sqrt", x))


@translates("aten.log1p")
def log1p(g: QdqGraph, x: Ref) -> Ref:
    """``log(1 + x)``."""
    return g.op("Log", g.op("Add", x, g.number(1.0, x.dtype)))


@translates("aten.expm1")
def expm1(g: QdqGraph, x: Ref) -> Ref:
    """``exp(x) - 1``."""
    return g.op("Sub", g.op("Exp", x), g.number(1.0, x.dtype))


@translates("aten.clamp", "aten.clip")
def clamp(g: QdqGraph, x: Ref, low: Any = None, high: Any = None) -> Ref:
    """Cut off below and above."""
    if any(isinstance(bound, Ref) and not isinstance(bound, Number) for bound in (low, high)):
        x = x if low is None else g.op("Max", *promoted(g, x, low))
        return x if high is None else g.op("Min", *promoted(g, x, high))
    given = [None if bound is None else g.number(bound, x.dtype) for bound in (low, high)]
    return g.op("Clip", x, *given, shape=x.shape)


@translates("halfstep.clamp_channels")
def clamp_channels(g: QdqGraph, x: Ref, low: Ref, high: Ref) -> Ref:
    """Cut off below and above, with bounds for each channel (axis 1)."""
    shape = (-1, *[1] * (x.rank - 2))
    return clamp(g, x, g.reshape(low, shape), g.reshape(high, shape))


@translates("aten.hardtanh")
def hardtanh(g: QdqGraph, x: Ref, low: float = -1.0, high: float = 1.0) -> Ref:
    """Cut off at -1 and 1."""
    return clamp(g, x, low, high)


@translates("aten.relu6")
def relu6(g: QdqGraph, x: Ref) -> Ref:
    """Cut off at 0 and 6."""
    return clamp(g, x, 0.0, 6.0)


@translates("aten.clamp_min")
def clamp_min(g: QdqGraph, x: Ref, low: Any) -> Ref:
    """Cut off below."""
    return clamp(g, x, low)


@translates("aten.clamp_max")
def clamp_max(g: QdqGraph, x: Ref, high: Any) -> Ref:
    """Cut off above."""
    return clamp(g, x, None, high)


@translates("aten.where")
def where(g: QdqGraph, condition: Ref, x: Term = 0.0, y: Term = 0.0) -> Ref:
    """Choose by a condition."""
    a, b = promoted(g, x, y)
    return g.op("Where", g.cast(condition, torch.bool), a, b, dtype=a.dtype)


@translates("aten.masked_fill")
def masked_fill(g: QdqGraph, x: Ref, mask: Ref, value: Term) -> Ref:
    """A value where the mask says so."""
    filled = _in(g, value, x.dtype)
    return g.op("Where", mask, filled, x, shape=broadcast(x.shape, mask.shape), dtype=x.dtype)


@translates("aten.to", "aten._to_copy")
def to(g: QdqGraph, x: Ref, dtype: Any = None, *_: Any, **options: Any) -> Ref:
    """The value in another dtype, where one is given."""
    wanted = options.get("dtype", dtype)
    if isinstance(wanted, Ref):  # aten.to.other
        return g.cast(x, wanted.dtype)
    return g.cast(x, wanted) if isinstance(wanted, torch.dtype) else x


@translates("aten.type_as")
def type_as(g: QdqGraph, x: Ref, other: Ref) -> Ref:
    """The value in the dtype of another."""
    return g.cast(x, other.dtype)


@translates("aten.clone", "aten.contiguous", "aten.detach", "aten.alias", "aten.lift_fresh_copy")
def same(g: QdqGraph, x: Ref, *_: Any, **__: Any) -> Ref:
    """The value itself: a graph has neither memory formats nor gradients."""
    return x


@translates("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout")
def dropout(g: QdqGraph, x: Ref, p: float = 0.5, train: bool = False) -> Ref:
    """Nothing, outside of training."""
    if train:
        raise refuse(g, "dropout in training", "call model.eval() before it is quantized")
    return x
