"""Which operators become tables between 8-bit codes, and their tables.

A table holds what torch's operator returns in float64 for each of the 256 values, so any operator
of one variable serves, with any numbers beside it. Each is built once, and stored.
"""

from typing import Any

from torch import Tensor

from halfstep.graph.channel_clamp import CLAMP_CHANNELS
from halfstep.graph.edges import Edge
from halfstep.graph.integer_tables import table_ends
from halfstep.graph.operators import resolve, torch_value
from halfstep.graph.program import Step, TorchName
from halfstep.graph.trees import Value, mapped
from halfstep.numerics import tables

_FUNCTIONS = (
    *("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"),
    *("sigmoid", "tanh", "silu", "gelu", "hardswish", "hardsigmoid", "mish", "softplus"),
    *("elu", "selu", "celu", "leaky_relu", "log_sigmoid", "softshrink", "hardshrink", "threshold"),
    *("abs", "neg", "sign", "square", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "atan", "erf"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "floor", "ceil", "round", "trunc"),
)
# With a number as the other operand, or the same value twice.
_ARITHMETIC = (
    *(
        f"{name}.{overload}"
        for name in ("add", "sub", "mul", "div")
        for overload in ("Tensor", "Scalar")
    ),
    *("rsub.Scalar", "div.Tensor_mode", "div.Scalar_mode", "pow.Tensor_Scalar", "pow.Scalar"),
)
# With tensors beside the variable, a number or two for each channel.
PER_CHANNEL = {"aten.prelu.default": "int.prelu_table", CLAMP_CHANNELS: "int.clamp_table"}
_TABLED = frozenset(
    [f"aten.{name}.default" for name in _FUNCTIONS]
    + [f"aten.{name}" for name in _ARITHMETIC]
    + [*PER_CHANNEL]
)


def is_tabled(step: Step) -> bool:
    """Whether a step is a function of one variable that has a table.

    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.tables import is_tabled
    >>> from halfstep.graph.trees import Value
    >>> x = Value("x")
    >>> is_tabled(Step("y", "aten.mul.Tensor", (x, 2.0)))
    True
    >>> is_tabled(Step("y", "aten.mul.Tensor", (x, Value("other"))))
    False
    """
    if step.op not in _TABLED:
        return False
    return len(set(step.reads())) == (len(step.args) if step.op in PER_CHANNEL else 1)


def table_of(step: Step, x: Edge, out: Edge) -> Tensor | None:
    """The table of a step from codes of ``x`` to codes of ``out``; None where it has none.

        table[q - lowest] = clamp(rne(f((q - zx) * sx) / sy) + zy, qmin, qmax)     in float64

    The result has 256 entries of out's storage. There is none for codes of more than 8 bits, and
    none where channels differ: see ``prelu_table`` and ``clamp_table``.

    >>> import halfstep as hs
    >>> from halfstep.graph.edges import Edge
    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.tables import table_of
    >>> from halfstep.graph.trees import Value
    >>> edge = Edge(hs.QSpec(hs.uint8), 0.5, 10)
    >>> table_of(Step("y", "aten.abs.default", (Value("x"),)), edge, edge)[:4].tolist()
    [20, 19, 18, 17]
    """
    if not is_tabled(step) or step.op in PER_CHANNEL or x.spec.dtype.bits > 8:
        return None
    function = resolve(step.op)

    def run(values: Tensor) -> Tensor:
        y: Tensor = function(*_given(step.args, values), **dict(_given(step.kwargs, values)))
        return y.double()

    return tables.build(run, *table_ends(x, out))


def _given(arguments: Any, values: Tensor) -> Any:
    """The arguments with the 256 values in place of the step's variable."""

    def leaf(given: Any) -> Any:
        if isinstance(given, Value):
            return values
        return torch_value(given) if isinstance(given, TorchName) else given

    return mapped(arguments, leaf)
