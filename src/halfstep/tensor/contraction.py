"""matmul, linear and convolutions of quantized tensors: exact integer sums, float results.

Torch takes these apart before operators are reached, so they are met as functions. Two quantized
operands whose scales do not change along the summed axis multiply as integers
(``numerics.integer``); anything else is floats, and so is what trains a quantized operand.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.numerics import ops
from halfstep.spec import PerTensor
from halfstep.tensor.axes import Kind
from halfstep.tensor.dispatch import function, on_floats, operator, to_float
from halfstep.tensor.moves import kind_of
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten

# How many dimensions the products of matrices and vectors take; matmul takes any.
_RANKS = {"mm": (2, 2), "bmm": (3, 3), "mv": (2, 1), "dot": (1, 1)}


def is_integer(q: Any) -> bool:
    """Whether a value's integers may be multiplied: a quantized tensor that does not train."""
    trains = isinstance(q, QTensor) and q.requires_grad and torch.is_grad_enabled()
    return isinstance(q, QTensor) and not q.spec.float_zero_point and not trains


def constant_along(q: Any, *dims: int) -> bool:
    """Whether a value has integers, one scale along these dimensions, and no runs elsewhere."""
    if not is_integer(q) or q.ndim == 0:
        return False
    whole = all(n in (1, size) for n, size in zip(q.scale.shape, q.shape, strict=True))
    return whole and all(q.scale.shape[dim] == 1 for dim in dims)


def operands_of(q: QTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Integers, scale and zero point, as the operators of ``numerics`` take them."""
    return (q.ints, *q.qparams())


def _with_bias(y: Tensor, bias: Any, spatial: int = 0) -> Tensor:
    """Add the bias along the channels, in float32."""
    if bias is None:
        return y
    floats: Tensor = to_float(bias).float()
    return y + floats.view(-1, *[1] * spatial)


@function("matmul", "__matmul__", "mm", "bmm", "mv", "dot")
def matmul(func: Any, *operands: Any, **named: Any) -> Any:
    """a @ b; vectors become matrices of one row or column for the product."""
    named_first = [named["input"]] if "input" in named else []
    given = (*named_first, *operands, *(named[key] for key in named if key != "input"))
    name = getattr(func, "__name__", "")
    if len(given) != 2 or not _multipliable(name, *given):
        return on_floats(func, name, operands, named)
    a, b = given
    rows = a.unsqueeze(0) if a.ndim == 1 else a
    columns = b.unsqueeze(1) if b.ndim == 1 else b
    product = ops.matmul(*operands_of(rows), *operands_of(columns))
    product = product.squeeze(-1) if b.ndim == 1 else product
    product = product.squeeze(-1 if b.ndim == 1 else -2) if a.ndim == 1 else product
    return product.to(torch.promote_types(a.dtype, b.dtype))


def _multipliable(name: str, a: Any, b: Any) -> bool:
    """Whether integers serve; torch's own message meets shapes that do not fit."""
    if not (is_integer(a) and is_integer(b)) or 0 in (a.ndim, b.ndim):
        return False
    summed = b.ndim - 2 if b.ndim > 1 else 0
    fits = a.shape[-1] == b.shape[summed] and _RANKS.get(name, (a.ndim, b.ndim)) == (a.ndim, b.ndim)
    batched = name != "bmm" or a.shape[0] == b.shape[0]
    return fits and batched and constant_along(a, -1) and constant_along(b, summed)


@function("__rmatmul__")
def reversed_matmul(func: Any, b: Any, a: Any) -> Any:
    """a @ b, asked of b."""
    return matmul(torch.matmul, a, b)


@operator(aten.mm.default, aten.bmm.default)
def matrix_product(func: Any, a: Any, b: Any) -> Any:
    """The products in programs that torch has taken apart, such as exported ones."""
    name = func._schema.name.partition("::")[2]
    return matmul(getattr(torch, name), a, b) if _multipliable(name, a, b) else NotImplemented


@function("linear")
def linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 (torch's name)
    """x (..., I) with w (O, I), per tensor, per output channel or per group along I."""
    if not _linear_in_integers(input, weight):
        return on_floats(func, "linear", (input, weight, bias), {})
    y = ops.linear(*operands_of(input), *operands_of(weight))
    return _with_bias(y, bias).to(input.dtype)


def _linear_in_integers(x: Any, w: Any) -> bool:
    if not constant_along(x, -1) or not is_integer(w) or w.ndim != 2:
        return False
    in_groups = kind_of(w, 1) is Kind.CUT
    return x.shape[-1] == w.shape[1] and (in_groups or constant_along(w, 1))


@operator(aten.linear.default)
def linear_operator(func: Any, x: Any, w: Any, bias: Any = None) -> Any:
    """Linear where torch hands it over whole, as in exported programs."""
    return linear(func, x, w, bias) if _linear_in_integers(x, w) else NotImplemented


@function("conv1d", "conv2d", "conv3d")
def conv(func: Any, *args: Any, **named: Any) -> Any:
    """x per tensor (or per sample), w per tensor or per output channel."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = dict(zip(names, args, strict=False)) | named
    x, w, padding = given["input"], given["weight"], given.get("padding", 0)
    if not _convolvable(x, w, *range(1, w.ndim)) or _is_refused(padding, given.get("stride", 1)):
        return on_floats(func, func.__name__, args, named)
    spatial = w.ndim - 2
    stride, dilation = (_each(given.get(name, 1), spatial) for name in ("stride", "dilation"))
    before, after = _padding(padding, w.shape[2:], dilation)
    batched = x if x.ndim == w.ndim else x.unsqueeze(0)
    if before != after:  # uneven "same" padding: the extra border comes last
        pairs = zip(reversed(before), reversed(after), strict=True)
        batched = aten.constant_pad_nd(batched, [n for b, a in pairs for n in (0, a - b)])
    window = (stride, before, dilation, given.get("groups", 1))
    y = ops.conv(*operands_of(batched), *operands_of(w), None, *window)
    y = _with_bias(y, given.get("bias"), spatial)
    return (y if batched.ndim == x.ndim else y.squeeze(0)).to(x.dtype)


@function("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(func: Any, *args: Any, **named: Any) -> Any:
    """x per tensor (or per sample), w per tensor or per output channel, which is axis 1."""
    names = "input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"
    given = dict(zip(names, args, strict=False)) | named
    x, w = given["input"], given["weight"]
    if not _convolvable(x, w, 0, *range(2, w.ndim)):
        return on_floats(func, func.__name__, args, named)
    spatial = w.ndim - 2
    defaults = {"stride": 1, "padding": 0, "output_padding": 0}
    each = [_each(given.get(name, default), spatial) for name, default in defaults.items()]
    batched = x if x.ndim == w.ndim else x.unsqueeze(0)
    window = (*each, given.get("groups", 1), _each(given.get("dilation", 1), spatial))
    y = ops.conv_transpose(*operands_of(batched), *operands_of(w), None, *window)
    y = _with_bias(y, given.get("bias"), spatial)
    return (y if batched.ndim == x.ndim else y.squeeze(0)).to(x.dtype)


def _convolvable(x: Any, w: Any, *constant: int) -> bool:
    """Whether integers serve: x's scale may change with the sample only, w's with the output."""
    if not is_integer(x) or not constant_along(w, *constant):
        return False
    if isinstance(x.spec.granularity, PerTensor):
        return x.ndim in (w.ndim, w.ndim - 1)
    return bool(x.ndim == w.ndim) and constant_along(x, *range(1, x.ndim))


def _is_refused(padding: Any, stride: Any) -> bool:
    """Whether torch refuses a padding given by name."""
    strided = any(step != 1 for step in ([stride] if isinstance(stride, int) else stride))
    return isinstance(padding, str) and padding != "valid" and (padding != "same" or strided)


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
