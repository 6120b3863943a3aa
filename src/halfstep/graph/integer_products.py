"""Integer steps that sum products: linear, convolutions and matmul, and the same by rows.

Exact sums, then bias, residual and activation in float32, then codes of ``out``, or floats where it
is None.
"""

from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.graph.edges import Edge
from halfstep.graph.integer_codes import Bounds, Ints, finished, operand
from halfstep.numerics import fused, integer, rows
from halfstep.numerics.rows import Rows
from halfstep.tensor import QTensor
from halfstep.tensor.contraction import operands_of


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
    y = integer.linear(*operand(x, x_edge), *operands_of(weight), bias)
    return finished(_with_residual(y, residual, residual_edge), activation, out)


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
    operands = (*operand(x, x_edge), *operands_of(weight))
    y = integer.conv(*operands, bias, stride, padding, dilation, groups)
    return finished(_with_residual(y, residual, residual_edge), activation, out)


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
    y = integer.conv_transpose(
        *operand(x, x_edge),
        *operands_of(weight),
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )
    return finished(_with_residual(y, residual, residual_edge), activation, out)


def matmul(a: Tensor, a_edge: Edge, b: Tensor, b_edge: Edge, out: Edge | None) -> Tensor:
    """a @ b of any ranks; a vector is a row on the left and a column on the right."""
    left = a.unsqueeze(0) if a.ndim == 1 else a
    right = b.unsqueeze(1) if b.ndim == 1 else b
    y = integer.matmul(*operand(left, a_edge), *operand(right, b_edge))
    y = y.squeeze(-2) if a.ndim == 1 else y
    return finished(y.squeeze(-1) if b.ndim == 1 else y, None, out)


def linear_rows(given: Rows, weight: QTensor, bias: Tensor | None, activation: Bounds) -> Tensor:
    """``linear`` of rows that have scales of their own; float32."""
    return finished(rows.linear_rows(given, operands_of(weight), bias), activation, None)


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
    y = integer.conv(*given, *operands_of(weight), bias, stride, padding, dilation, groups)
    return finished(y, activation, None)


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
    operands = (*given, *operands_of(weight))
    y = integer.conv_transpose(*operands, bias, stride, padding, output_padding, groups, dilation)
    return finished(y, activation, None)


def _check_samples(given: Rows, weight: QTensor) -> None:
    """Refuse scales that change within a sample, whose terms have no common grid."""
    codes, scale, _ = given
    if codes.ndim != weight.ndim or scale.numel() not in (1, codes.shape[0]):
        raise ArgumentError(
            f"x of shape {tuple(codes.shape)} has scales of shape {tuple(scale.shape)}: a "
            f"convolution takes one for each of a batch of samples, PerChannel(0)"
        )


def _with_residual(y: Tensor, residual: Tensor | None, edge: Edge | None) -> Tensor:
    if residual is None or edge is None:
        return y
    return fused.add_residual(y, *operand(residual, edge))
