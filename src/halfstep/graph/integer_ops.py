"""The integer steps of a program, "int.linear" and the like, by their formulas: the reference.

Codes are plain tensors, one element each, whose format an ``Edge`` says. A weight is a ``QTensor``.
``out`` is the edge of the result, or None for float32. Arguments stand in the order of the step.
What is computed, to the last bit, is in ``numerics`` and in docs/numerics.md.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.graph import integer_recurrent
from halfstep.graph.edges import Edge
from halfstep.graph.integer_tables import prelu_table
from halfstep.numerics import elementwise, embedding, fused, ops, pooling, rows
from halfstep.numerics.rows import Rows
from halfstep.spec import QSpec
from halfstep.tensor import QTensor, quantize
from halfstep.tensor.contraction import operands_of

Bounds: TypeAlias = tuple[float | None, float | None] | None
Ints: TypeAlias = Sequence[int]


def quantize_codes(x: Tensor, out: Edge) -> Tensor:
    """clamp(rne(x / scale) + zero_point, qmin, qmax)."""
    return ops.quantize(*_operand(x, out), out.qmin, out.qmax, out.storage)


def dequantize_codes(x: Tensor, x_edge: Edge) -> Tensor:
    """(q - zero_point) * scale, contiguous."""
    return ops.dequantize(*_operand(x, x_edge), torch.float32).contiguous()


def _operand(x: Tensor, edge: Edge) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor with scale and zero point of all its dimensions, on its device."""
    scale, zero_point = edge.qparams(x.ndim)
    return x, scale.to(x.device), zero_point.to(x.device)


def _finished(y: Tensor, activation: Bounds, out: Edge | None) -> Tensor:
    """The activation, then codes of ``out``, or contiguous floats; no gradient goes through."""
    y = y.detach()
    if activation is not None:
        y = fused.clamp(y, *activation)
    if out is None:
        return y.contiguous()
    return ops.requantize(*_operand(y, out), out.qmin, out.qmax, out.storage)


def _with_residual(y: Tensor, residual: Tensor | None, edge: Edge | None) -> Tensor:
    if residual is None or edge is None:
        return y
    return fused.add_residual(y, *_operand(residual, edge))


# --- Contractions --------------------------------------------------------------------------------


def linear(
    x: Tensor,
    x_edge: Edge,
    weight: QTensor,
    bias: Tensor | None,
    residual: Tensor | None,
    residual_edge: Edge | None,
    activation: Bounds,
    out: Edge | None,
) -> Tensor:
    """x (..., I) with weight (O, I)."""
    y = ops.linear(*_operand(x, x_edge), *operands_of(weight), bias)
    return _finished(_with_residual(y, residual, residual_edge), activation, out)


def conv(
    x: Tensor,
    x_edge: Edge,
    weight: QTensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    residual: Tensor | None,
    residual_edge: Edge | None,
    activation: Bounds,
    out: Edge | None,
) -> Tensor:
    """x (N, C, ...) with weight (O, C / groups, ...); padding is exact zero."""
    window = (stride, padding, dilation, groups)
    y = ops.conv(*_operand(x, x_edge), *operands_of(weight), bias, *window)
    return _finished(_with_residual(y, residual, residual_edge), activation, out)


def conv_transpose(
    x: Tensor,
    x_edge: Edge,
    weight: QTensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
    residual: Tensor | None,
    residual_edge: Edge | None,
    activation: Bounds,
    out: Edge | None,
) -> Tensor:
    """x (N, C, ...) with weight (C, O / groups, ...), whose scales are along axis 1."""
    window = (stride, padding, output_padding, groups, dilation)
    y = ops.conv_transpose(*_operand(x, x_edge), *operands_of(weight), bias, *window)
    return _finished(_with_residual(y, residual, residual_edge), activation, out)


def matmul(a: Tensor, a_edge: Edge, b: Tensor, b_edge: Edge, out: Edge | None) -> Tensor:
    """a @ b of any ranks; a vector is a row on the left and a column on the right."""
    left = a.unsqueeze(0) if a.ndim == 1 else a
    right = b.unsqueeze(1) if b.ndim == 1 else b
    y = ops.matmul(*_operand(left, a_edge), *_operand(right, b_edge))
    y = y.squeeze(-2) if a.ndim == 1 else y
    return _finished(y.squeeze(-1) if b.ndim == 1 else y, None, out)


def linear_rows(given: Rows, weight: QTensor, bias: Tensor | None, activation: Bounds) -> Tensor:
    """``linear`` of rows that have scales of their own; float32."""
    return _finished(rows.linear_rows(given, operands_of(weight), bias), activation, None)


def conv_rows(
    given: Rows,
    weight: QTensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    activation: Bounds,
) -> Tensor:
    """``conv`` of samples that have scales of their own; float32."""
    _check_samples(given, weight)
    y = ops.conv(*given, *operands_of(weight), bias, stride, padding, dilation, groups)
    return _finished(y, activation, None)


def conv_transpose_rows(
    given: Rows,
    weight: QTensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
    activation: Bounds,
) -> Tensor:
    """``conv_transpose`` of samples that have scales of their own; float32."""
    _check_samples(given, weight)
    window = (stride, padding, output_padding, groups, dilation)
    y = ops.conv_transpose(*given, *operands_of(weight), bias, *window)
    return _finished(y, activation, None)


def _check_samples(given: Rows, weight: QTensor) -> None:
    """Refuse scales that change within a sample, whose terms have no common grid."""
    codes, scale, _ = given
    if codes.ndim != weight.ndim or scale.numel() not in (1, codes.shape[0]):
        raise ArgumentError(
            f"x of shape {tuple(codes.shape)} has scales of shape {tuple(scale.shape)}: a "
            f"convolution takes one for each of a batch of samples, PerChannel(0)"
        )


# --- Between codes -------------------------------------------------------------------------------


def _binary(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The step of a formula of two operands; shapes broadcast."""

    def step(
        a: Tensor, a_edge: Edge, b: Tensor, b_edge: Edge, activation: Bounds, out: Edge | None
    ) -> Tensor:
        return _finished(formula(*_operand(a, a_edge), *_operand(b, b_edge)), activation, out)

    return step


def cat(parts: Sequence[Tensor], part_edges: Sequence[Edge], dim: int, out: Edge | None) -> Tensor:
    """Each part dequantized, and requantized to the format of the result."""
    pairs = zip(parts, part_edges, strict=True)
    values = [ops.dequantize(*_operand(part, edge), torch.float32) for part, edge in pairs]
    return torch.cat([_finished(value, None, out) for value in values], dim)


def avg_pool(
    x: Tensor,
    x_edge: Edge,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    out: Edge | None,
) -> Tensor:
    """The mean over sliding windows of the last ``len(kernel)`` dimensions."""
    codes = _operand(x, x_edge)
    y = pooling.avg_pool(*codes, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    return _finished(y, None, out)


def adaptive_avg_pool(
    x: Tensor, x_edge: Edge, size: Sequence[int | None], out: Edge | None
) -> Tensor:
    """The mean over ``size`` windows of the last dimensions."""
    return _finished(pooling.adaptive_avg_pool(*_operand(x, x_edge), size), None, out)


def mean(x: Tensor, x_edge: Edge, dims: Ints | None, keepdim: bool, out: Edge | None) -> Tensor:
    """The mean over dimensions."""
    return _finished(pooling.mean(*_operand(x, x_edge), dims, keepdim), None, out)


# --- Lookups and weights -------------------------------------------------------------------------


def embedding_rows(weight: QTensor, indices: Tensor) -> Tensor:
    """The rows of a weight, dequantized; float32."""
    return embedding.rows(*operands_of(weight), indices)


def embedding_bag(
    weight: QTensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    """A sum (mode 0), mean (1) or maximum (2) of rows for each bag; float32."""
    return embedding.bags(
        *operands_of(weight),
        indices,
        offsets,
        mode,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )


def dequantize_weight(weight: QTensor) -> Tensor:
    """The floats of a weight that an operator takes as floats."""
    return weight.floats()


def quantize_weight(w: Tensor, spec: QSpec) -> QTensor:
    """A weight that the model computes from others."""
    return quantize(w.detach(), spec)


INTEGER: dict[str, Callable[..., Any]] = {
    "int.quantize": quantize_codes,
    "int.dequantize": dequantize_codes,
    "int.quantize_rows": rows.quantize_rows,
    "int.linear": linear,
    "int.conv": conv,
    "int.conv_transpose": conv_transpose,
    "int.matmul": matmul,
    "int.linear_rows": linear_rows,
    "int.conv_rows": conv_rows,
    "int.conv_transpose_rows": conv_transpose_rows,
    "int.add": _binary(elementwise.add),
    "int.sub": _binary(elementwise.sub),
    "int.mul": _binary(elementwise.mul),
    "int.cat": cat,
    "int.avg_pool": avg_pool,
    "int.adaptive_avg_pool": adaptive_avg_pool,
    "int.mean": mean,
    "int.table": elementwise.look_up,
    "int.prelu_table": prelu_table,
    "int.clamp": elementwise.clamp_codes,
    "int.max_pool": pooling.max_pool,
    "int.adaptive_max_pool": pooling.adaptive_max_pool,
    "int.embedding": embedding_rows,
    "int.embedding_bag": embedding_bag,
    "int.dequantize_weight": dequantize_weight,
    "int.quantize_weight": quantize_weight,
    "int.lstm": integer_recurrent.lstm,
    "int.gru": integer_recurrent.gru,
    "int.rnn": integer_recurrent.rnn,
}
