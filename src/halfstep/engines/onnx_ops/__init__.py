"""What torch's operators are in ONNX: a table from their names to functions that write nodes."""

from halfstep.engines.onnx_ops import (
    activations,
    choices,
    convolution,
    creation,
    elementwise,
    lookups,
    matrix,
    moves,
    normalization,
    numbers,
    padding,
    pooling,
    recurrent,
    reductions,
    resizing,
)
from halfstep.engines.onnx_ops.table import Translation, found

# Importing one enters its operators into the table.
_ENTERED = (
    *(activations, choices, convolution, creation, elementwise, lookups, matrix, moves),
    *(normalization, numbers, padding, pooling, recurrent, reductions, resizing),
)


def translation(op: str) -> Translation | None:
    """The function for an operator such as "aten.relu.default", if there is one.

    >>> translation("aten.relu.default") is None, translation("aten.svd.default") is None
    (False, True)
    """
    return found(op)
