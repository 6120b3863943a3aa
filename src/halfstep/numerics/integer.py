"""The integer reference: what a quantized linear, conv, conv-transpose or matmul computes.

    acc = sum (qx - zx) * (qw - zw)            exact
    y   = (float(acc) * sx) * sw + bias        each operation rounded to float32

Products of integers are summed in float64, which is exact below 2^53. Where the scale of a weight
changes along the summed axis (per group), y is the float32 sum over the groups, in order, of
``(float(acc_g) * sx) * sw_g``; the bias comes last.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from halfstep.numerics.affine import spread

# By the number of dimensions of the weight.
CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
CONV_TRANSPOSE = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


def centred(q: Tensor, zero_point: Tensor) -> Tensor:
    """q - zero_point in float64, which holds it and its products exactly."""
    return q.double() - spread(zero_point, q.shape).double()


def _finish(acc: Tensor, x_scale: Tensor, w_scale: Tensor, bias: Tensor | None) -> Tensor:
    exact = acc.float() + 0.0  # an integer has no -0.0, which a float product of 0 may have
    y = (exact * x_scale) * w_scale
    return y if bias is None else y + bias.float()


def matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
) -> Tensor:
    """a (..., M, K) @ b (..., K, N), scales constant along K."""
    acc = centred(a, a_zero_point) @ centred(b, b_zero_point)
    return _finish(acc, a_scale, b_scale, None)


def linear(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """x (..., I) times w (O, I) transposed, plus bias (O); w_scale is (1|O, 1) or (O, I / g)."""
    x64, w64 = centred(x, x_zero_point), centred(w, w_zero_point)
    groups = w_scale.shape[1]
    if groups == 1:
        return _finish(x64 @ w64.t(), x_scale, w_scale.reshape(-1), bias)
    y = torch.zeros((*x.shape[:-1], w.shape[0]), dtype=torch.float32, device=x.device)
    for group in range(groups):
        cut = slice(group * w.shape[1] // groups, (group + 1) * w.shape[1] // groups)
        y = y + _finish(x64[..., cut] @ w64[:, cut].t(), x_scale, w_scale[:, group], None)
    return y if bias is None else y + bias.float()


def conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """x (N, C, ...) convolved with w (O, C / groups, ...), whose scale is (1|O, 1, ...).

    Padding is exact zero.
    """
    acc = CONV[w.ndim](
        centred(x, x_zero_point), centred(w, w_zero_point), None, stride, padding, dilation, groups
    )
    return _finish(acc, x_scale, _per_output(w_scale, 1, w.ndim), _channels(bias, w.ndim))


def conv_transpose(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """The transpose of ``conv``: x (N, C, ...), w (C, O / groups, ...) with scales per axis 1.

    w_scale is (1, 1|O / groups, 1, ...).
    """
    acc = CONV_TRANSPOSE[w.ndim](
        centred(x, x_zero_point),
        centred(w, w_zero_point),
        None,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )
    return _finish(acc, x_scale, _per_output(w_scale, groups, w.ndim), _channels(bias, w.ndim))


def _per_output(w_scale: Tensor, groups: int, ndim: int) -> Tensor:
    """The weight scale along the output's channel dimension."""
    scale = w_scale.reshape(-1) if w_scale.numel() == 1 else w_scale.flatten().repeat(groups)
    return scale.view(-1, *[1] * (ndim - 2))


def _channels(bias: Tensor | None, ndim: int) -> Tensor | None:
    return None if bias is None else bias.view(-1, *[1] * (ndim - 2))


def requantize(
    y: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, dtype: torch.dtype
) -> Tensor:
    """q = clamp(rne(y * (1 / scale) + zero_point), qmin, qmax); 1 / scale is rounded to float32."""
    inverse = spread(scale.reciprocal(), y.shape)
    codes = (y.float() * inverse + spread(zero_point, y.shape).float()).round()
    return torch.empty_like(y, dtype=dtype).copy_(codes.clamp(qmin, qmax))
