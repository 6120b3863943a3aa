"""Embeddings and bags of them. Of a table of integers only the rows that are read become floats."""

from typing import Any

import torch

from halfstep.engines.onnx_graph import Known, Number, Ref
from halfstep.engines.onnx_ops.elementwise import where
from halfstep.engines.onnx_ops.moves import unsqueeze
from halfstep.engines.onnx_ops.reductions import reduce
from halfstep.engines.onnx_ops.table import translates
from halfstep.engines.onnx_qdq import QdqGraph
from halfstep.tensor import QTensor

_MODES = ("sum", "mean", "max")


@translates("aten.embedding")
def embedding(g: QdqGraph, weight: Ref, indices: Ref, *_: Any) -> Ref:
    """Rows of a weight (R, D)."""
    if isinstance(weight, Known) and isinstance(weight.tensor, QTensor):
        return _rows(g, weight.name, weight.tensor, indices)
    return _gather(g, g.value(weight), indices)


def _gather(g: QdqGraph, table: Ref, indices: Ref) -> Ref:
    return g.op("Gather", table, indices, shape=(*indices.shape, *table.shape[1:]),
                dtype=table.dtype, axis=0)  # fmt: skip


def _rows(g: QdqGraph, name: str, q: QTensor, indices: Ref) -> Ref:
    """``(q[i] - zero_point[i]) * scale[i]``; groups of a row keep scales of their own."""
    codes = g.cast(_gather(g, g.store(name, q.int_repr()), indices), torch.float32)
    groups = q.scale.shape[1]
    sizes = [g.size(codes, axis) for axis in range(codes.rank)]
    if groups > 1:
        codes = g.reshape(codes, (*sizes[:-1], groups, q.shape[1] // groups))
    parts = [
        _qparams(g, f"{name}.{kind}", values, indices, is_grouped=groups > 1)
        for kind, values in (("zero_point", q.zero_point.float()), ("scale", q.scale))
        if kind == "scale" or torch.count_nonzero(values)
    ]
    if len(parts) == 2:
        codes = g.op("Sub", codes, parts[0])
    rows = g.op("Mul", codes, parts[-1], shape=codes.shape)
    return g.reshape(rows, sizes) if groups > 1 else rows


def _qparams(
    g: QdqGraph, name: str, values: torch.Tensor, indices: Ref, *, is_grouped: bool
) -> Ref:
    """The scales of the rows that are read, to multiply with."""
    if values.numel() == 1:
        return g.constant(values.reshape(()))
    if values.shape[0] > 1:
        found = _gather(g, g.store(name, values.contiguous()), indices)
    else:
        found = g.constant(values[0])
    return unsqueeze(g, found, found.rank) if is_grouped else found


@translates("aten.embedding_bag", "aten._embedding_bag")
def embedding_bag(
    g: QdqGraph,
    weight: Ref,
    indices: Ref,
    offsets: Ref,
    scale_grad: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Ref | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Ref, ...]:
    """Sums, means or largest of rows, for each bag of indices."""
    rows = embedding(g, weight, indices)
    kept: Ref | None = None
    if padding_idx is not None and padding_idx >= 0:
        padding = g.number(padding_idx, indices.dtype)
        kept = g.op("Not", g.op("Equal", indices, padding, dtype=torch.bool))
    if per_sample_weights is not None:
        rows = g.op("Mul", rows, unsqueeze(g, per_sample_weights, 1))
    length = g.ranges.get(offsets.name, (None, None, None))[2]
    if length is not None and not include_last_offset:
        found = _of_equal_bags(g, rows, kept, length, _MODES[mode])
    else:
        member = _members(g, indices, offsets, kept, is_last_given=include_last_offset)
        found = _of_bags(g, rows, member, _MODES[mode])
    return (found,)


def _of_equal_bags(
    g: QdqGraph, rows: Ref, kept: Ref | None, length: "int | Number", mode: str
) -> Ref:
    """Bags of one length: (B length, D) as (B, length, D)."""
    size = [-1, length, g.size(rows, 1)]
    bags = g.op("Reshape", rows, g.sizes(size), shape=(None, None, rows.shape[1]))
    if kept is None:
        op = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}[mode]
        return reduce(g, op, bags, [1])
    mask = g.op("Reshape", kept, g.sizes([-1, length, 1]), shape=(None, None, 1))
    return _reduced(g, bags, mask, mode)


def _members(
    g: QdqGraph, indices: Ref, offsets: Ref, kept: Ref | None, *, is_last_given: bool
) -> Ref:
    """Which index belongs to which bag: (B, N)."""
    count = g.size(indices, 0)
    numbers = [g.number(n, offsets.dtype) for n in (0, count, 1)]
    places = g.op("Range", *numbers, shape=(None,), dtype=offsets.dtype)
    end = g.sizes([count]) if offsets.dtype == torch.int64 else g.cast(
        g.sizes([count]), offsets.dtype)  # fmt: skip
    starts, ends = (
        g.op("Slice", offsets, [a], [b], [0], [1], shape=(None,))
        for a, b in ((0, -1 if is_last_given else 2**63 - 1), (1, 2**63 - 1))
    )
    if not is_last_given:
        ends = g.op("Concat", ends, end, shape=(None,), axis=0)
    after = g.op("GreaterOrEqual", places, unsqueeze(g, starts, 1), dtype=torch.bool)
    before = g.op("Less", places, unsqueeze(g, ends, 1), dtype=torch.bool)
    member = g.op("And", after, before)
    return member if kept is None else g.op("And", member, kept)


def _of_bags(g: QdqGraph, rows: Ref, member: Ref, mode: str) -> Ref:
    """Bags of any lengths, by a matrix that says who belongs where."""
    if mode == "max":
        return _reduced(g, unsqueeze(g, rows, 0), unsqueeze(g, member, 2), mode)
    ones = g.cast(member, torch.float32)
    total = g.op("MatMul", ones, rows, shape=(None, rows.shape[1]))
    return total if mode == "sum" else g.op("Div", total, _counts(g, ones, keepdim=True))


def _reduced(g: QdqGraph, bags: Ref, mask: Ref, mode: str) -> Ref:
    """Over axis 1 of (B, length, D), where the mask says so; an empty bag gives zeros."""
    if mode == "max":
        low = g.number(float("-inf"), torch.float32)
        best = reduce(g, "ReduceMax", where(g, mask, bags, low), [1])
        is_empty = g.op("Equal", best, low, dtype=torch.bool)
        return where(g, is_empty, g.number(0.0, torch.float32), best)
    ones = g.cast(mask, torch.float32)
    total = reduce(g, "ReduceSum", g.op("Mul", bags, ones), [1])
    return total if mode == "sum" else g.op("Div", total, _counts(g, ones, keepdim=False))


def _counts(g: QdqGraph, ones: Ref, *, keepdim: bool) -> Ref:
    """How many belong to each bag, at least 1."""
    count = reduce(g, "ReduceSum", ones, [1], keepdim=keepdim)
    return g.op("Max", count, g.number(1.0, torch.float32))
