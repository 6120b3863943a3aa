"""Edges and activations in the terms of the kernels."""

import math
from typing import TypeAlias

import torch

from halfstep.graph.edges import Edge
from halfstep.numerics import ops
from halfstep.numerics.native_codes import Codes, Finish

Bounds: TypeAlias = tuple[float | None, float | None] | None


def codes_of(edge: Edge) -> Codes:
    """The format of an operand."""
    return Codes(edge.storage, edge.scale, edge.zero_point)


def finish_of(out: Edge | None, activation: Bounds = None) -> Finish:
    """What becomes of a float result: floats, or codes of ``out``.

    Requantizing is monotone, roundings and all, so clamping to [lo, hi] before it is clamping to
    the codes of lo and hi after it, and costs nothing.

    >>> import halfstep as hs
    >>> from halfstep.engines.terms import finish_of
    >>> from halfstep.graph.edges import Edge
    >>> finish = finish_of(Edge(hs.QSpec(hs.uint8), 0.1, 3), (0.0, 6.0))
    >>> finish.qmin, finish.qmax
    (3, 63)
    """
    lo, hi = activation or (None, None)
    if out is None:
        lowest, highest = (-math.inf if lo is None else lo), (math.inf if hi is None else hi)
        return Finish(torch.float32, lo=lowest, hi=highest)
    qmin = out.qmin if lo is None else requantized(lo, out)
    qmax = out.qmax if hi is None else requantized(hi, out)
    return Finish(out.storage, out.scale, out.zero_point, qmin, qmax)


def requantized(value: float, out: Edge) -> int:
    """``clamp(rne(value * (1 / scale) + zero_point), qmin, qmax)``."""
    scale, zero_point = out.qparams(1)
    y = torch.tensor([value], dtype=torch.float32)
    return int(ops.requantize(y, scale, zero_point, out.qmin, out.qmax, torch.int32).item())
