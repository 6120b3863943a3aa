"""add, sub, mul, cat and scaling: results stay quantized, within half a step of the exact value.

The exact value is taken in float32, and in float64 where an operand has codes of more than 16 bits.
Times or by a positive number only the scale changes, so there the result is as exact as the one
float32 product that is its scale: to a relative 2^-24, which is below half a step up to 16 bits.
``fitting`` chooses their scale and zero point.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.numerics.affine import spread
from halfstep.numerics.checks import Qparam, has_values, resolve_qparams
from halfstep.spec import PerGroup
from halfstep.tensor.axes import Kind
from halfstep.tensor.dispatch import operator
from halfstep.tensor.fitting import codes_of, fitted, result_dtype, result_spec
from halfstep.tensor.moves import axis_of, exact_values, kind_of, place, rebuilt, steps_of, wide
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten
_GREATEST = torch.finfo(torch.float32).max


def _quantized(args: Sequence[Any]) -> list[QTensor]:
    return [arg for arg in args if isinstance(arg, QTensor)]


def _exact(operand: Any, *beside: Any) -> Any:
    """The exact values, so that a result is rounded to a step once, not first to float16."""
    return exact_values(operand, *beside) if isinstance(operand, QTensor) else operand


def _is_number(operand: Any) -> bool:
    """Whether an operand is one finite real number; what is not leaves the integers."""
    if not isinstance(operand, Tensor):
        return isinstance(operand, int | float) and math.isfinite(operand)
    if operand.ndim or operand.is_complex():
        return False
    return not has_values(operand) or bool(operand.isfinite())


def _stays_quantized(*operands: Any) -> bool:
    return all(isinstance(operand, QTensor) or _is_number(operand) for operand in operands)


@operator(aten.add.Tensor, aten.sub.Tensor)
def add_or_sub(func: Any, first: Any, second: Any, *, alpha: Any = 1) -> Any:
    """first ± alpha * second, of two quantized tensors, or of one and a number."""
    if not (_stays_quantized(first, second) and _is_number(alpha)):
        return NotImplemented
    operands = _quantized((first, second))
    value = func(_exact(first, second), _exact(second, first), alpha=alpha)
    codes = None
    if len(operands) == 2 and isinstance(alpha, int) and not first.spec.float_zero_point:
        codes = func(steps_of(first), steps_of(second), alpha=alpha)
        codes = codes + spread(first.zero_point, first.shape)
    return fitted(value, operands, codes).to(torch.result_type(first, second))


@operator(aten.rsub.Tensor, aten.rsub.Scalar)
def reversed_sub(func: Any, first: Any, second: Any, alpha: Any = 1) -> Any:
    """second - alpha * first."""
    dtype = torch.result_type(first, second)
    first, second = (
        value if isinstance(value, Tensor) else _as_tensor(value) for value in (first, second)
    )
    result = add_or_sub(aten.sub.Tensor, second, first, alpha=alpha)
    return result if result is NotImplemented else result.to(dtype)


def _as_tensor(number: Any) -> Tensor:
    """A number with all its digits: a float32 holds too few of them for codes of 32 bits."""
    return torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None)


@operator(aten.mul.Tensor)
def multiply(func: Any, first: Any, second: Any) -> Any:
    """The product of two quantized tensors, or of one and a number."""
    if not _stays_quantized(first, second):
        return NotImplemented
    operands = _quantized((first, second))
    if len(operands) == 1:
        factor = second if isinstance(first, QTensor) else first
        if not isinstance(factor, Tensor) and factor > 0:
            return _rescaled(operands[0], operands[0].scale * factor, factor)
    value = func(_exact(first, second), _exact(second, first))
    return fitted(value, operands).to(torch.result_type(first, second))


@operator(aten.div.Tensor)
def divide(func: Any, q: Any, divisor: Any) -> Any:
    """By a positive number: the integers stay, the scale is divided. Else it runs on floats."""
    if isinstance(divisor, Tensor) or not _is_number(divisor) or divisor <= 0:
        return NotImplemented
    return _rescaled(q, q.scale / divisor, 1 / divisor)


def _rescaled(q: QTensor, scale: Tensor, factor: float) -> Any:
    """The same integers under another scale, but where that is too small or too great for one."""
    within = scale.clamp(torch.finfo(torch.float32).tiny, _GREATEST)
    same, ints, zero_point = scale == within, q.ints.clone(), q.zero_point.clone()
    if not (has_values(same) and same.all()):
        if q.spec.float_zero_point:  # whose codes may not reach zero
            return NotImplemented
        new = codes_of(_exact(q) * factor, within, zero_point, q.spec)
        ints = torch.where(spread(same, q.shape), wide(ints), wide(new)).to(ints.dtype)
    return QTensor.from_parts(ints, within, zero_point, q.spec, q.dtype)


@operator(aten.neg.default)
def negate(func: Any, q: QTensor) -> QTensor:
    """-x, refitted where the format is not symmetric about its zero point."""
    if q.spec.float_zero_point:
        return fitted(-_exact(q), [q])
    return fitted(-_exact(q), [q], spread(q.zero_point, q.shape) - steps_of(q))


@operator(aten.cat.default)
def cat(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Along the channel axis each part keeps its scales; elsewhere as for a sum."""
    operands = _quantized(tensors)
    if len(operands) != len(tensors):
        return NotImplemented
    first, at = operands[0], place(dim, operands[0].ndim)
    if _joinable(operands, at):
        ints = func([wide(q.ints) for q in operands], at).to(first.ints.dtype)
        scale = func([q.scale for q in operands], at)
        zero_point = func([q.zero_point for q in operands], at)
        return rebuilt(first, ints, scale, zero_point, first.spec.granularity)
    codes = func([q.ints.to(torch.int64) for q in operands], at)
    return fitted(func([_exact(q, *operands) for q in operands], at), operands, codes)


def _joinable(operands: Sequence[QTensor], at: int) -> bool:
    """Whether the scales of the parts can stand side by side along a dimension."""
    first = operands[0]
    in_groups = isinstance(first.spec.granularity, PerGroup) and at == axis_of(first)
    alike = all(q.spec == first.spec and q.dtype == first.dtype for q in operands)
    return alike and (in_groups or kind_of(first, at) is not Kind.SHARED)


@operator(aten.stack.default)
def stack(func: Any, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors side by side along a new dimension."""
    if len(_quantized(tensors)) != len(tensors):
        return NotImplemented
    at = place(dim, tensors[0].ndim + 1)
    return aten.cat.default([aten.unsqueeze.default(q, at) for q in tensors], at)


# The verbs that take the result's qparams.


def add(
    first: Tensor, second: Tensor, *, scale: Qparam, zero_point: Qparam | None = None
) -> QTensor:
    """first + second, quantized with the given scale and zero point.

        q = clamp(rne((a + b) / scale) + zero_point, qmin, qmax)

    The format is the operands' (the wider, on the axis that the result has). The sum is taken in
    float32, and in float64 where an operand has codes of more than 16 bits. Raises
    ``ArgumentTypeError`` where neither is quantized, ``ArgumentError`` for qparams or shapes that
    do not fit, ``NonFiniteError`` for NaN.

    >>> import halfstep as hs, torch
    >>> a = hs.quantize(torch.tensor([1.0, 2.0]), hs.int8, scale=0.5, zero_point=0)
    >>> hs.add(a, a, scale=1.0, zero_point=0).int_repr()
    tensor([2, 4], dtype=torch.int8)
    """
    return _with_qparams(torch.add, first, second, scale, zero_point)


def mul(
    first: Tensor, second: Tensor, *, scale: Qparam, zero_point: Qparam | None = None
) -> QTensor:
    """first * second, quantized with the given scale and zero point.

        q = clamp(rne((a * b) / scale) + zero_point, qmin, qmax)

    Format, precision and errors as for ``add``.

    >>> import halfstep as hs, torch
    >>> a = hs.quantize(torch.tensor([1.0, 2.0]), hs.int8, scale=0.5, zero_point=0)
    >>> hs.mul(a, a, scale=0.5, zero_point=0).int_repr()
    tensor([2, 8], dtype=torch.int8)
    """
    return _with_qparams(torch.mul, first, second, scale, zero_point)


def _with_qparams(
    func: Any, first: Tensor, second: Tensor, scale: Qparam, zero_point: Qparam | None
) -> QTensor:
    operands = _quantized((first, second))
    if not operands:
        raise ArgumentTypeError(
            f"neither operand is a QTensor ({type(first).__name__} and {type(second).__name__}): "
            "quantize one with hs.quantize first"
        )
    _check_operands(first, second)
    value = func(_exact(first, second), _exact(second, first)).detach()
    spec = result_spec(operands, value.shape)
    step, offset = resolve_qparams(value.shape, spec, scale, zero_point, value.device)
    ints = codes_of(value, step, offset, spec, check_nan=True)
    return QTensor.from_parts(ints, step, offset, spec, result_dtype(operands))


def _check_operands(*operands: Any) -> None:
    for operand in operands:
        is_complex = isinstance(operand, Tensor) and operand.is_complex()
        if not isinstance(operand, Tensor | int | float) or is_complex:
            what = operand.dtype if isinstance(operand, Tensor) else type(operand).__name__
            raise ArgumentTypeError(f"an operand is {what}: give tensors of real numbers")
    shapes = [tuple(operand.shape) for operand in operands if isinstance(operand, Tensor)]
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        raise ArgumentError(
            f"operands of shapes {' and '.join(map(str, shapes))} do not broadcast: sizes have to "
            "be equal or 1, counted from the last"
        ) from None
