"""Which operators a program from a file may name."""

import re
from typing import Final

import torch

from halfstep.errors import ArgumentError, FileFormatError
from halfstep.graph.operators import PYTHON, resolve

NAMESPACES: Final = ("aten", "prims", "halfstep", "int")
# Of torch's tensor operators the ones that reach files, or trust indices without looking.
_REFUSED: Final = re.compile(r"aten::(from_file|_sparse_\w+_unsafe|_nested_view_from_)")


def check_op(op: str) -> None:
    """Nothing, for an operator on tensors or sizes.

    Raises ``FileFormatError`` that names any other: operators of other packages, and those of
    TorchScript, some of which write files (``aten.save``).

    >>> check_op("aten.relu.default")
    >>> try:
    ...     check_op("aten.save.default")
    ... except FileFormatError as error:
    ...     print(error)
    it calls aten.save.default, which is no operator on tensors: a file may not
    """
    if op in PYTHON:
        return
    if op.partition(".")[0] not in NAMESPACES:
        raise FileFormatError(
            f"it calls {op[:100]}, and a file may call operators of {', '.join(NAMESPACES)} alone"
        )
    try:
        function = resolve(op)
    except ArgumentError as error:
        raise FileFormatError(f"it calls {op[:100]}: {error}") from error
    if isinstance(function, torch._ops.OpOverload):
        name = function.name()
        # An operator of TorchScript alone is none of the dispatcher's.
        if _REFUSED.match(name) or not torch._C._dispatch_has_kernel(name):
            raise FileFormatError(
                f"it calls {op[:100]}, which is no operator on tensors: a file may not"
            )
