"""Kernels for the steps that go element by element: to codes and back, sums, products, tables."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.engines.terms import codes_of, finish_of
from halfstep.graph.edges import Edge
from halfstep.graph.frozen import Bound, Lookup
from halfstep.numerics import native
from halfstep.numerics.native_codes import Between, Requantize, is_served, look_up


def _serves(*edges: Edge | None) -> bool:
    """Whether kernels are loaded and take codes of these formats; None is float32."""
    return is_served(*(edge.storage for edge in edges if edge is not None))


def quantize(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.quantize, its qparams made once for each number of dimensions."""
    x, out = args
    if not _serves(out):
        return None
    qparams = [out.qparams(ndim) for ndim in range(9)]
    qmin, qmax, dtype = out.qmin, out.qmax, out.storage

    def run(x: Tensor) -> Tensor:
        scale, zero_point = qparams[x.ndim]
        return native.quantize(x, scale, zero_point, qmin, qmax, dtype)

    return Bound(run, (x,))


def dequantize(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.dequantize."""
    x, x_edge = args
    if not _serves(x_edge):
        return None
    return Bound(Requantize(codes_of(x_edge), finish_of(None)), (x,))


def _meeting(kind: str) -> Callable[[tuple[Any, ...], Lookup], Bound | None]:
    def binder(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
        a, a_edge, b, b_edge, activation, out = args
        if not _serves(a_edge, b_edge, out):
            return None
        finish = finish_of(out, activation)
        return Bound(Between(kind, codes_of(a_edge), codes_of(b_edge), finish), (a, b))

    return binder


def cat(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.cat: a part that has the scale of the result keeps its codes."""
    parts, part_edges, dim, out = args
    if not _serves(*part_edges, out):
        return None
    finish = finish_of(out)
    changes = [
        None if _keeps_codes(edge, out) else Requantize(codes_of(edge), finish)
        for edge in part_edges
    ]

    def run(parts: Sequence[Tensor]) -> Tensor:
        pairs = zip(parts, changes, strict=True)
        return torch.cat([part if to is None else to(part) for part, to in pairs], dim)

    return Bound(run, (parts,))


def _keeps_codes(edge: Edge, out: Edge | None) -> bool:
    if out is None or edge.storage != out.storage:
        return False
    inside = out.qmin <= edge.qmin and edge.qmax <= out.qmax
    return inside and (edge.scale, edge.zero_point) == (out.scale, out.zero_point)


def table(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.table, of 8-bit codes."""
    x, table = args
    known = lookup(table)
    if known is None or not is_served(known.dtype):
        return None
    entries = known.contiguous()
    return Bound(lambda x: look_up(x, entries), (x,))


def clamp(args: tuple[Any, ...], lookup: Lookup) -> Bound:
    """int.clamp: torch's own is as fast, where it takes the dtype."""
    return Bound(torch.ops.aten.clamp.default, args)


BINDERS = {
    "int.quantize": quantize,
    "int.dequantize": dequantize,
    "int.add": _meeting("add"),
    "int.sub": _meeting("sub"),
    "int.mul": _meeting("mul"),
    "int.cat": cat,
    "int.table": table,
    "int.clamp": clamp,
}
