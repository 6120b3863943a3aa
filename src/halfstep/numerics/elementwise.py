"""Ops between codes, element by element, in plain PyTorch: add, sub, mul, table, clamp.

Operands have the qparams of ``dequantize``; results are float32, or codes where said.
"""

import torch
from torch import Tensor

from halfstep.numerics.affine import spread, steps_from_zero


def _value(q: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    return steps_from_zero(q, zero_point) * spread(scale, q.shape)


def _steps(q: Tensor, zero_point: Tensor) -> Tensor:
    """q - zero_point in int64, where 0 has no sign."""
    return q.long() - spread(zero_point, q.shape)


def add(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
) -> Tensor:
    """y = float(da) * sa + float(db) * sb: three roundings; shapes broadcast."""
    return _value(a, a_scale, a_zero_point) + _value(b, b_scale, b_zero_point)


def sub(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
) -> Tensor:
    """y = float(da) * sa - float(db) * sb: three roundings; shapes broadcast."""
    return _value(a, a_scale, a_zero_point) - _value(b, b_scale, b_zero_point)


def mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
) -> Tensor:
    """y = (float(da * db) * sa) * sb, the product of the integers exact; shapes broadcast."""
    acc = _steps(a, a_zero_point) * _steps(b, b_zero_point)
    return (acc.float() * spread(a_scale, a.shape)) * spread(b_scale, b.shape)


def look_up(q: Tensor, table: Tensor) -> Tensor:
    """table[q - lowest], codes of 8 bits to codes; ``lowest`` is that of q's dtype.

    table: (256,), or (C, 256) with a row for each index of axis 1.

    >>> import torch
    >>> from halfstep.numerics.elementwise import look_up
    >>> look_up(torch.tensor([-128, 0, 127], dtype=torch.int8), torch.arange(256))
    tensor([  0, 128, 255])
    """
    place = q.long() - torch.iinfo(q.dtype).min
    if table.ndim == 2:
        row = torch.arange(table.shape[0], device=q.device) * table.shape[1]
        place = place + row.view(-1, *[1] * (q.ndim - 2))
    found: Tensor = table.reshape(-1)[place]
    return found


def clamp_codes(q: Tensor, lo: int, hi: int) -> Tensor:
    """min(max(q, lo), hi) in q's dtype, uint16 included, which torch cannot compare."""
    clamped = q.to(torch.int32).clamp(lo, hi)
    return torch.empty_like(q).copy_(clamped)
