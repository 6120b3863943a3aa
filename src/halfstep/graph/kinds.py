"""What is known of operators: which have an integer form, and where their operands stand.

The positions hold for normalized programs, in which every argument is given by position.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from halfstep.graph.program import Step
from halfstep.graph.tables import is_tabled
from halfstep.graph.trees import Value, leaves


class Family(Enum):
    """What an operator does to codes.

    CONTRACTION: sums of products, the work that integers save.
    POINTWISE: values are combined or changed; the result has a range of its own.
    CLAMP: values are cut off; part of the operator before it where it can be.
    MOVE: values are moved or chosen, so that the codes keep their scale.
    LOOKUP: rows of a weight are read.
    RECURRENT: a contraction for each time step.
    """

    CONTRACTION = "contraction"
    POINTWISE = "pointwise"
    CLAMP = "clamp"
    MOVE = "move"
    LOOKUP = "lookup"
    RECURRENT = "recurrent"


@dataclass(frozen=True)
class Kind:
    """An operator with an integer form.

    name: what engines call it.
    operands: the positions of the tensors that may be codes.
    weight: the position of its weight, if it has one; of a recurrent layer, of all weights.
    """

    name: str
    family: Family
    operands: tuple[int, ...] = (0,)
    weight: int | None = None


_LINEAR = Kind("linear", Family.CONTRACTION, weight=1)
_CONV = Kind("conv", Family.CONTRACTION, weight=1)
_CONV_TRANSPOSE = Kind("conv_transpose", Family.CONTRACTION, weight=1)
_MATMUL = Kind("matmul", Family.CONTRACTION, (0, 1))
_CLAMP = Kind("clamp", Family.CLAMP)
_MOVE = Kind("move", Family.MOVE)
_MAX_POOL = Kind("max_pool", Family.MOVE)
_TABLE = Kind("table", Family.POINTWISE)

_KINDS = {
    "aten.linear": _LINEAR,
    **{f"aten.conv{n}d": _CONV for n in (1, 2, 3)},
    **{f"aten.conv_transpose{n}d": _CONV_TRANSPOSE for n in (1, 2, 3)},
    **{f"aten.{name}": _MATMUL for name in ("matmul", "bmm", "mm")},
    **{f"aten.{name}": Kind(name, Family.POINTWISE, (0, 1)) for name in ("add", "sub", "mul")},
    "aten.cat": Kind("cat", Family.POINTWISE),
    **{f"aten.avg_pool{n}d": Kind("avg_pool", Family.POINTWISE) for n in (1, 2, 3)},
    **{
        f"aten.adaptive_avg_pool{n}d": Kind("adaptive_avg_pool", Family.POINTWISE)
        for n in (1, 2, 3)
    },
    "aten.mean.dim": Kind("mean", Family.POINTWISE),
    **{
        f"aten.{name}": _CLAMP
        for name in ("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max")
    },
    **{f"aten.max_pool{n}d": _MAX_POOL for n in (1, 2, 3)},
    "aten.embedding": Kind("embedding", Family.LOOKUP, (), weight=0),
    "aten.embedding_bag": Kind("embedding_bag", Family.LOOKUP, (), weight=0),
    "halfstep.lstm": Kind("lstm", Family.RECURRENT, (), weight=3),
    "halfstep.gru": Kind("gru", Family.RECURRENT, (), weight=2),
    "halfstep.rnn": Kind("rnn", Family.RECURRENT, (), weight=2),
}
_MOVES = (
    *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as"),
    *("permute", "transpose", "t", "swapaxes", "movedim", "moveaxis", "numpy_T", "mT"),
    *("squeeze", "unsqueeze", "expand", "expand_as", "repeat", "tile", "repeat_interleave"),
    *("slice", "select", "narrow", "chunk", "split", "split_with_sizes", "unbind", "tensor_split"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "flip", "roll", "rot90"),
    *("index_select", "gather", "unfold", "constant_pad_nd", "pad"),
    *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)),
    *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
    *("contiguous", "clone", "alias", "detach"),
)
# Zero has a code in every format, and the lowest code loses to all others. The range of what is
# padded need not hold any other value.
_PADDED_WITH = (None, 0, -math.inf)
_KINDS |= {f"aten.{name}": _MOVE for name in _MOVES}
_KINDS["operator.getitem"] = _MOVE


def kind_of(step: Step) -> Kind | None:
    """The integer form of a step's operator, if there is one for these arguments.

    >>> from halfstep.graph.kinds import kind_of
    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.trees import Value
    >>> kind_of(Step("y", "aten.relu.default", (Value("x"),))).name
    'clamp'
    >>> kind_of(Step("y", "aten.softmax.int", (Value("x"), -1, None))) is None
    True
    """
    kind = _KINDS.get(step.op) or _KINDS.get(step.op.rpartition(".")[0])
    if kind is not None and _fits(step, kind):
        return kind
    return _TABLE if is_tabled(step) else None


def _fits(step: Step, kind: Kind) -> bool:
    """Whether these arguments are ones that the integer form has."""
    if kind.name in ("add", "sub", "mul"):
        of_tensors = all(isinstance(value, Value) for value in step.args[:2])
        return of_tensors and dict(step.kwargs).get("alpha", 1) == 1
    if kind.name == "mean":
        return dict(step.kwargs).get("dtype") is None and step.args[1] is not None
    if step.op == "aten.constant_pad_nd.default":
        return step.args[2] in _PADDED_WITH
    if kind is _CLAMP:
        return not any(isinstance(value, Value) for value in step.args[1:])
    return True


def is_move(name: str) -> bool:
    """Whether an operator of torch, by its bare name, only moves or chooses values.

    >>> from halfstep.graph.kinds import is_move
    >>> is_move("transpose"), is_move("add")
    (True, False)
    """
    return name in _MOVES


def operands(step: Step, kind: Kind) -> Iterator[Value]:
    """The values that the integer form takes as codes, in order."""
    for place in kind.operands:
        yield from (leaf for leaf in leaves(step.args[place]) if isinstance(leaf, Value))


def clamp_bounds(step: Step) -> tuple[float | None, float | None]:
    """The bounds of a clamp-like step.

    >>> from halfstep.graph.kinds import clamp_bounds
    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.trees import Value
    >>> clamp_bounds(Step("y", "aten.relu6.default", (Value("x"),)))
    (0.0, 6.0)
    """
    name = step.op.split(".")[1]
    if name in ("relu", "relu6"):
        return 0.0, 6.0 if name == "relu6" else None
    given = [None if bound is None else float(bound) for bound in step.args[1:3]]
    low, high = (*given, None, None)[:2]
    return (None, low) if name == "clamp_max" else (low, high)
