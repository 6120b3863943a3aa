"""Integer steps from codes to codes: into and out of integers, sums, products, joins and means.

What is computed, to the last bit, is in ``numerics``: these call its plain formulas, never a
kernel, so that they can be what kernels are compared with.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.numerics import affine, fused, integer, pooling

Bounds: TypeAlias = tuple[float | None, float | None] | None
Ints: TypeAlias = Sequence[int]


def quantize_codes(x: Tensor, out: Edge) -> Tensor:
    """clamp(rne(x / scale) + zero_point, qmin, qmax)."""
    return affine.quantize(*operand(x.detach(), out), out.qmin, out.qmax, out.storage)


def dequantize_codes(x: Tensor, x_edge: Edge) -> Tensor:
    """(q - zero_point) * scale, contiguous."""
    return affine.dequantize(*operand(x, x_edge), torch.float32).contiguous()


def operand(x: Tensor, edge: Edge) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor with scale and zero point of all its dimensions, on its device."""
    scale, zero_point = edge.qparams(x.ndim)
    return x, scale.to(x.device), zero_point.to(x.device)


def finished(y: Tensor, activation: Bounds, out: Edge | None) -> Tensor:
    """The activation, then codes of ``out``, or contiguous floats; no gradient goes through."""
    y = y.detach()
    if activation is not None:
        y = fused.clamp(y, *activation)
    if out is None:
        return y.contiguous()
    return integer.requantize(*operand(y, out), out.qmin, out.qmax, out.storage)


def binary(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The step of a formula of two operands; shapes broadcast."""

    def step(
        a: Tensor, a_edge: Edge, b: Tensor, b_edge: Edge, activation: Bounds, out: Edge | None
    ) -> Tensor:
        return finished(formula(*operand(a, a_edge), *operand(b, b_edge)), activation, out)

    return step


def cat(parts: Sequence[Tensor], part_edges: Sequence[Edge], dim: int, out: Edge | None) -> Tensor:
    """Each part dequantized, and requantized to the format of the result."""
    pairs = zip(parts, part_edges, strict=True)
    values = [affine.dequantize(*operand(part, edge), torch.float32) for part, edge in pairs]
    return torch.cat([finished(value, None, out) for value in values], dim)


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
    codes = operand(x, x_edge)
    y = pooling.avg_pool(*codes, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    return finished(y, None, out)


def adaptive_avg_pool(
    x: Tensor, x_edge: Edge, size: Sequence[int | None], out: Edge | None
) -> Tensor:
    """The mean over ``size`` windows of the last dimensions."""
    return finished(pooling.adaptive_avg_pool(*operand(x, x_edge), size), None, out)


def mean(x: Tensor, x_edge: Edge, dims: Ints | None, keepdim: bool, out: Edge | None) -> Tensor:
    """The mean over dimensions."""
    return finished(pooling.mean(*operand(x, x_edge), dims, keepdim), None, out)
