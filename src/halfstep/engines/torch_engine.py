"""Integers inside PyTorch: our kernels and oneDNN's, whichever is faster for a shape.

Every kernel equals the reference in each bit, so which one runs shows in the time alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from halfstep.engines.bind_codes import BINDERS as CODES
from halfstep.engines.bind_pools import BINDERS as POOLS
from halfstep.engines.bind_products import BINDERS as PRODUCTS
from halfstep.engines.bind_recurrent import BINDERS as RECURRENT
from halfstep.engines.bind_rows import BINDERS as ROWS
from halfstep.engines.reference import KINDS, formats
from halfstep.graph.convert import convert
from halfstep.graph.edges import Edge
from halfstep.graph.frozen import Bound, Frozen, Lookup
from halfstep.graph.program import Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.trees import leaves
from halfstep.spec import Capabilities

# What binds a step, from its arguments: a function and what it is called with, or None.
Binder: TypeAlias = Callable[[tuple[Any, ...], Lookup], Bound | None]


def _as_reshape(args: tuple[Any, ...], lookup: Lookup) -> Bound:
    """A view of codes whose channels are innermost may need a copy, where the float's did not."""
    return Bound(torch.ops.aten.reshape.default, args)


BINDERS: dict[str, Binder] = {
    **CODES,
    **POOLS,
    **PRODUCTS,
    **RECURRENT,
    **ROWS,
    "aten.view.default": _as_reshape,
    "aten._unsafe_view.default": _as_reshape,
}


def bind(step: Step, lookup: Lookup) -> Bound | None:
    """The kernel for a step, with its weights packed; None where its operator serves."""
    binder = BINDERS.get(step.op)
    return None if binder is None or step.kwargs else binder(step.args, lookup)


# These steps do not say how wide their codes are.
_WITHOUT_EDGE = ("int.clamp", "int.max_pool", "int.adaptive_max_pool")


def _bind_narrow(step: Step, lookup: Lookup) -> Bound | None:
    """The same in a program where some codes are wider than the kernels take."""
    given = [leaf for leaf in leaves(step.args) if isinstance(leaf, Edge)]
    if step.op in _WITHOUT_EDGE or any(edge.spec.dtype.bits > 8 for edge in given):
        return None
    return bind(step, lookup)


# Activations of 16 bits run by the formulas.
_CAPABILITIES = Capabilities(
    engine="torch", integer_ops=KINDS, dtypes=formats("uint8", "int8", "uint16", "int16")
)


@dataclass(frozen=True)
class TorchEngine:
    """Integer execution inside PyTorch, equal to the reference in every integer.

    >>> from halfstep.engines.torch_engine import TorchEngine
    >>> TorchEngine().name, TorchEngine().capabilities.dtypes
    ('torch', (uint8, int8, uint16, int16))
    """

    name: str = "torch"
    capabilities: Capabilities = _CAPABILITIES

    def plan(self, quantized: Quantized, module: nn.Module) -> Frozen:
        """The converted program with a kernel for each step that has one.

        Packed weights live in the plan alone: they are made anew for every copy of it.
        """
        wide = any(edge.spec.dtype.bits > 8 for edge in quantized.edges.values())
        return Frozen(convert(quantized, self.capabilities), _bind_narrow if wide else bind)
