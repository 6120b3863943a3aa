"""Means and maxima of codes over windows, in plain PyTorch.

    acc = sum of (q - zero_point) over the window          exact; padding adds 0
    y   = (float(acc) * scale) / float(k)                  k elements

The mean is over 1 to 3 spatial dimensions, the last ones; the scale is one for the tensor. Maxima
are codes and need no scale.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from halfstep.numerics.integer import centred

_SUM: dict[int, Callable[..., Tensor]] = {2: F.avg_pool2d, 3: F.avg_pool3d}
_MAX: dict[int, Callable[..., Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_ADAPTIVE_MAX: dict[int, Callable[..., Tensor]] = {
    1: F.adaptive_max_pool1d,
    2: F.adaptive_max_pool2d,
    3: F.adaptive_max_pool3d,
}


def _mean(acc: Tensor, scale: Tensor, count: Tensor | int) -> Tensor:
    divisor = torch.as_tensor(count, dtype=torch.float32, device=acc.device)
    return (acc.float() * scale.reshape(())) / divisor


def mean(
    q: Tensor, scale: Tensor, zero_point: Tensor, dims: Sequence[int] | None, keepdim: bool
) -> Tensor:
    """The mean over dimensions, over all of them for None or ()."""
    dims = tuple(dims or range(q.ndim))
    acc = centred(q, zero_point).sum(dims, keepdim=keepdim)
    return _mean(acc, scale, math.prod(q.shape[dim] for dim in dims))


def avg_pool(
    q: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """The mean over sliding windows: k counts padding if asked to, or is ``divisor``.

    An empty stride is the kernel. With ``ceil_mode`` the last window may hang over the padded
    border; what hangs over is never counted.
    """
    stride, values = stride or kernel, centred(q, zero_point)
    if len(kernel) == 1:  # as one row of two dimensions, since avg_pool1d has no divisor
        row = ((1, *kernel), (1, *stride), (0, *padding))
        acc = _SUM[2](values.unsqueeze(-2), *row, ceil_mode, divisor_override=1).squeeze(-2)
    else:
        pool = _SUM[len(kernel)]
        acc = pool(values, kernel, stride, padding, ceil_mode, divisor_override=1)
    if divisor is not None:
        return _mean(acc, scale, divisor)
    spatial = zip(q.shape[-len(kernel) :], acc.shape[-len(kernel) :], strict=True)
    counts = [
        window_sizes(size, out, k, s, p if count_include_pad else 0, p)
        for (size, out), k, s, p in zip(spatial, kernel, stride, padding, strict=True)
    ]
    return _mean(acc, scale, _outer(counts).to(q.device))


def window_sizes(
    size: int, out: int, kernel: int, stride: int, border: int, padding: int
) -> Tensor:
    """How many places each window of one dimension counts: from -border to size + border.

    >>> from halfstep.numerics.pooling import window_sizes
    >>> window_sizes(5, 3, 3, 2, 0, 1)
    tensor([2, 3, 2])
    """
    start = torch.arange(out) * stride - padding
    end = (start + kernel).clamp(max=size + border)
    return end - start.clamp(min=-border)


def _outer(counts: Sequence[Tensor]) -> Tensor:
    """The product of one count for each dimension, over all of them."""
    product = counts[0]
    for count in counts[1:]:
        product = product.unsqueeze(-1) * count
    return product


def adaptive_avg_pool(
    q: Tensor, scale: Tensor, zero_point: Tensor, size: Sequence[int | None]
) -> Tensor:
    """The mean over ``size`` windows: from floor(i * n / out) to ceil((i + 1) * n / out)."""
    acc, counts = centred(q, zero_point), []
    for dim, out in enumerate(size, start=q.ndim - len(size)):
        n = q.shape[dim]
        inside = _adaptive_windows(n, n if out is None else out).to(acc)
        acc = (acc.movedim(dim, -1) @ inside).movedim(-1, dim)
        counts.append(inside.sum(0))
    return _mean(acc, scale, _outer(counts))


def _adaptive_windows(n: int, out: int) -> Tensor:
    """Which of n places belong to which of ``out`` windows: (n, out) of booleans."""
    window, place = torch.arange(out), torch.arange(n).unsqueeze(1)
    return (place >= window * n // out) & (place < -(-(window + 1) * n // out))


def max_pool(
    q: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Tensor:
    """The highest code of each window, padding left out; an empty stride is the kernel.

    A window that meets nothing but padding gives the lowest code of the dtype.
    """
    pool = _MAX[len(kernel)]
    y = pool(q.float(), kernel, stride or kernel, padding, dilation, ceil_mode)
    return _as_codes(y, q.dtype)


def adaptive_max_pool(q: Tensor, size: Sequence[int | None]) -> Tensor:
    """The highest code of each window of ``adaptive_avg_pool``."""
    return _as_codes(_ADAPTIVE_MAX[len(size)](q.float(), size), q.dtype)


def _as_codes(y: Tensor, dtype: torch.dtype) -> Tensor:
    codes = y.clamp(min=torch.iinfo(dtype).min)
    return torch.empty_like(y, dtype=dtype).copy_(codes)
