"""Quantization while the model runs: a scale for each row, so that rows do not meet.

ONNX's DynamicQuantizeLinear has one scale for all rows, by which a sample's result would depend on
its neighbors. So the formulas are written out:

    lo = min(row, 0), hi = max(row, 0), scale = (hi - lo) / (qmax - qmin)
    zero_point = clamp(qmin - rne(lo / scale), qmin, qmax)
    q = clamp(rne(x / scale) + zero_point, qmin, qmax)
    y = (float(sum of q * w) - zero_point * sum of w) * scale) * w_scale + bias
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from halfstep.engines.onnx_graph import Ref
from halfstep.engines.onnx_ops.reductions import reduce
from halfstep.engines.onnx_qdq import QdqGraph
from halfstep.spec import PerGroup, QSpec
from halfstep.tensor import QTensor

_SMALLEST_SCALE = 2.0**-126


@dataclass(frozen=True)
class Rows:
    """Codes as floats, with a scale and a zero point for each row."""

    codes: Ref
    scale: Ref
    zero_point: Ref


def rows_of(g: QdqGraph, x: Ref, spec: QSpec, axes: Sequence[int]) -> Rows:
    """Quantize, with one scale for all elements along ``axes``."""

    def number(value: float) -> Ref:
        return g.number(float(value), torch.float32)

    low = g.op("Min", reduce(g, "ReduceMin", x, axes, keepdim=True), number(0))
    high = g.op("Max", reduce(g, "ReduceMax", x, axes, keepdim=True), number(0))
    qmin, qmax = spec.qmin, spec.qmax
    if spec.symmetric:
        below = g.op("Div", low, number(-qmax if spec.narrow_range else qmin))
        wide = g.op("Max", below, g.op("Div", high, number(qmax)))
    else:
        wide = g.op("Div", g.op("Sub", high, low), number(qmax - qmin))
    is_zero = g.op("Less", wide, number(_SMALLEST_SCALE), dtype=torch.bool)
    scale = g.op("Where", is_zero, number(1), wide, dtype=torch.float32)
    zero_point = number(0)
    if not spec.symmetric:
        steps = g.op("Round", g.op("Div", low, scale))
        zero_point = g.op("Clip", g.op("Sub", number(qmin), steps), qmin, qmax, shape=scale.shape)
    shifted = g.op("Round", g.op("Div", x, scale))
    if not spec.symmetric:
        shifted = g.op("Add", shifted, zero_point)
    codes = g.op("Clip", shifted, float(qmin), float(qmax), shape=x.shape)
    return Rows(codes, scale, zero_point)


def rounded_rows(g: QdqGraph, x: Ref, spec: QSpec | None, axes: Sequence[int]) -> Ref:
    """The values rounded to the steps of their rows, as floats."""
    if spec is None:
        return x
    rows = rows_of(g, x, spec, axes)
    return g.op("Mul", g.op("Sub", rows.codes, rows.zero_point), rows.scale)


def linear_of_rows(g: QdqGraph, x: Ref, name: str, q: QTensor, bias: Ref | None) -> Ref:
    """A linear layer whose input rows are quantized while it runs."""
    spec = g.decision.input
    if spec is None or isinstance(q.spec.granularity, PerGroup) or q.spec.dtype.bits > 8:
        y = g.op("MatMul", rounded_rows(g, x, spec, [-1]), g.turned_weight(name, q),
                 shape=(*x.shape[:-1], q.shape[0]))  # fmt: skip
        return y if bias is None else g.op("Add", y, bias)
    rows = rows_of(g, x, spec, [-1])
    y = g.op("Mul", g.cast(_sums(g, rows, spec, name, q), torch.float32), rows.scale)
    y = g.op("Mul", y, g.constant(q.scale.reshape(-1) if q.scale.numel() > 1 else q.scale[0, 0]))
    return y if bias is None else g.op("Add", y, bias)


def _sums(g: QdqGraph, rows: Rows, spec: QSpec, name: str, q: QTensor) -> Ref:
    """The exact sums of (q - zero_point) * (w - w_zero_point), as int32."""
    weight = g.store(name, q.ints.t().contiguous())
    offsets = q.zero_point.reshape(-1)
    given: list[Ref | None] = [g.cast(rows.codes, spec.dtype.storage), weight]
    if torch.count_nonzero(offsets):
        given += [None, g.constant(offsets.to(q.spec.dtype.storage))]
    shape = (*rows.codes.shape[:-1], q.shape[0])
    sums = g.op("MatMulInteger", *given, shape=shape, dtype=torch.int32)
    if spec.symmetric:
        return sums
    of_weights = (q.ints.int() - q.zero_point).sum(1, dtype=torch.int32)
    zero_point = g.cast(rows.zero_point, torch.int32)
    return g.op("Sub", sums, g.op("Mul", zero_point, g.constant(of_weights)))
