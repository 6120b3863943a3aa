"""Tables between two edges, and those that depend on a parameter."""

import torch
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.numerics import tables


def prelu_table(weight: Tensor, x: Edge, out: Edge) -> Tensor:
    """The table of ``prelu``: (256,) for one slope, (C, 256) for one in each channel.

        f(x) = x where it is positive, else x * slope

    >>> import halfstep as hs, torch
    >>> from halfstep.graph.edges import Edge
    >>> from halfstep.graph.integer_tables import prelu_table
    >>> edge = Edge(hs.QSpec(hs.int8), 1.0, 0)
    >>> prelu_table(torch.tensor([0.5]), edge, edge)[[0, 128 - 4, 128 + 4]].tolist()
    [-64, -2, 4]
    """
    slope = weight.detach().double().reshape(-1, 1)

    def run(values: Tensor) -> Tensor:
        return torch.where(values > 0, values, values * slope)

    table = tables.build(run, *table_ends(x, out))
    return table[0] if weight.numel() == 1 else table


def clamp_table(low: Tensor, high: Tensor, x: Edge, out: Edge) -> Tensor:
    """The table of ``clamp_channels``, (C, 256); low, high: (C,).

        f(x) = min(max(x, low), high)

    >>> import halfstep as hs, torch
    >>> from halfstep.graph.edges import Edge
    >>> from halfstep.graph.integer_tables import clamp_table
    >>> edge = Edge(hs.QSpec(hs.uint8), 1.0, 0)
    >>> clamp_table(torch.zeros(2), torch.tensor([6.0, torch.inf]), edge, edge)[:, 200].tolist()
    [6, 200]
    """
    bounds = (bound.detach().double().reshape(-1, 1) for bound in (low, high))
    least, most = bounds

    def run(values: Tensor) -> Tensor:
        return values.maximum(least).minimum(most)

    return tables.build(run, *table_ends(x, out))


def table_ends(x: Edge, out: Edge) -> tuple[tables.Codes, tables.Codes]:
    """What the codes before and after a table stand for.

    >>> import halfstep as hs
    >>> from halfstep.graph.edges import Edge
    >>> from halfstep.graph.integer_tables import table_ends
    >>> edge = Edge(hs.QSpec(hs.int8), 1.0, 0)
    >>> table_ends(edge, edge)[0].scale
    1.0
    """
    target = out.spec.dtype.within(out.qmin, out.qmax)
    return (
        tables.Codes(x.spec.dtype, x.scale, x.zero_point),
        tables.Codes(target, out.scale, out.zero_point),
    )
