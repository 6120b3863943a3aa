"""matmul, linear and convolutions of quantized tensors: exact integer sums, float results.

Torch takes these apart before operators are reached, so they are met as functions. Two quantized
operands whose scales do not change along the summed axis multiply as integers
(``numerics.integer``); anything else is floats.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.numerics import ops
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind, kinds
from halfstep.tensor.dispatch import function, on_floats, operator
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


def constant_along(q: Any, *dims: int) -> bool:
    """Whether a value is quantized with scales that do not change along these dimensions."""
    if not isinstance(q, QTensor) or q.spec.float_zero_point or q.ndim == 0:
        return False
    return all(q.scale.shape[dim] == 1 or q.shape[dim] == 1 for dim in dims)


def parts(q: QTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Integers, scale and zero point, as the operators of ``numerics`` take them."""
    return (q.ints, *q.qparams())


@function("matmul", "__matmul__", "mm", "bmm", "mv", "dot")
def matmul(func: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    """a @ b; vectors become matrices of one row or column for the product."""
    rows = a.unsqueeze(0) if isinstance(a, QTensor) and a.ndim == 1 else a
    columns = b.unsqueeze(1) if isinstance(b, QTensor) and b.ndim == 1 else b
    if kwargs or not (
        constant_along(rows, -1) and constant_along(columns, -2 % max(columns.ndim, 1))
    ):
        return on_floats(func, "matmul", (a, b), kwargs)
    if rows.ndim < 2 or rows.shape[-1] != columns.shape[-2]:
        return func(a.dequantize(), b.dequantize())  # for torch's own message about shapes
    product = ops.matmul(*parts(rows), *parts(columns))
    product = product.squeeze(-1) if b.ndim == 1 else product
    product = product.squeeze(-1 if b.ndim == 1 else -2) if a.ndim == 1 else product
    return product.to(torch.promote_types(a.dtype, b.dtype))


@function("__rmatmul__")
def reversed_matmul(func: Any, b: Any, a: Any) -> Any:
    """a @ b, asked of b."""
    return matmul(torch.matmul, a, b)


@operator(aten.mm.default, aten.bmm.default)
def matrix_product(func: Any, a: Any, b: Any) -> Any:
    """The products that torch itself makes of others, such as einsum's."""
    return matmul(func, a, b)


@function("linear")
def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
    """x (..., I) with w (O, I), per tensor, per output channel or per group along I."""
    integers = (
        constant_along(input, -1)
        and isinstance(weight, QTensor)
        and not weight.spec.float_zero_point
        and weight.ndim == 2
        and (weight.scale.shape[1] == 1 or kinds(weight.spec.granularity, 2)[1] is Kind.CUT)
        and input.shape[-1] == weight.shape[1]
    )
    if not integers:
        return on_floats(func, "linear", (input, weight, bias), {})
    bias = bias.dequantize() if isinstance(bias, QTensor) else bias
    return ops.linear(*parts(input), *parts(weight), bias).to(input.dtype)


@operator(aten.linear.default, aten.addmm.default)
def linear_operator(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Linear where torch hands it over whole, as in exported programs."""
    if func is aten.linear.default:
        return linear(func, *args, **kwargs)
    return NotImplemented


@function("conv1d", "conv2d", "conv3d")
def conv(
    func: Any,
    input: Any,  # noqa: A002
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """x per tensor (or per sample), w per tensor or per output channel."""
    given = (input, weight, bias, stride, padding, dilation, groups)
    if not _convolvable(input, weight, *range(1, weight.ndim)):
        return on_floats(func, func.__name__, given, {})
    spatial = weight.ndim - 2
    stride, dilation = _each(stride, spatial), _each(dilation, spatial)
    before, after = _padding(padding, weight.shape[2:], dilation)
    batched = input if input.ndim == weight.ndim else input.unsqueeze(0)
    if before != after:  # uneven "same" padding: the extra border comes last
        extra = [
            n for b, a in zip(reversed(before), reversed(after), strict=True) for n in (0, a - b)
        ]
        batched = torch.ops.aten.constant_pad_nd(batched, extra)
    bias = bias.dequantize() if isinstance(bias, QTensor) else bias
    y = ops.conv(*parts(batched), *parts(weight), bias, stride, before, dilation, groups)
    return (y if batched.ndim == input.ndim else y.squeeze(0)).to(input.dtype)


@function("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    func: Any,
    input: Any,  # noqa: A002
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """x per tensor (or per sample), w per tensor or per output channel, which is axis 1."""
    given = (input, weight, bias, stride, padding, output_padding, groups, dilation)
    if not _convolvable(input, weight, 0, *range(2, weight.ndim)):
        return on_floats(func, func.__name__, given, {})
    each = [_each(value, weight.ndim - 2) for value in (stride, padding, output_padding)]
    batched = input if input.ndim == weight.ndim else input.unsqueeze(0)
    bias = bias.dequantize() if isinstance(bias, QTensor) else bias
    spread = _each(dilation, weight.ndim - 2)
    y = ops.conv_transpose(*parts(batched), *parts(weight), bias, *each, groups, spread)
    return (y if batched.ndim == input.ndim else y.squeeze(0)).to(input.dtype)


def _convolvable(x: Any, w: Any, *constant: int) -> bool:
    """Whether integers serve: x's scale may change with the sample only, w's with the output."""
    if not isinstance(x, QTensor) or not constant_along(w, *constant):
        return False
    per_sample = constant_along(x, *range(1, x.ndim)) and x.ndim == w.ndim
    return x.ndim in (w.ndim, w.ndim - 1) and (
        (per_sample and not x.spec.float_zero_point)
        or (isinstance(x.spec.granularity, PerTensor) and not x.spec.float_zero_point)
    )


def _each(value: Any, count: int) -> list[int]:
    """One number for each spatial dimension."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def _padding(
    padding: Any, kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The border before and after each spatial dimension."""
    if padding == "valid":
        return [0] * len(kernel), [0] * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [t // 2 for t in total], [t - t // 2 for t in total]
    each = _each(padding, len(kernel))
    return each, each
