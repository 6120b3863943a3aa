"""The native kernels between codes: sums, products, changes of scale, tables, pooling, rows.

    add = Between("add", a, b, finish)             once
    out = add(x, y)                                in each run

What is known before a run is prepared once, so that a run costs a few microseconds beyond its
work. Every result equals the formulas of ``elementwise``, ``pooling`` and ``rows`` in every bit.
Codes are uint8 or int8.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from halfstep.numerics import native
from halfstep.numerics.pooling import window_sizes

Rows: TypeAlias = tuple[Tensor, Tensor, Tensor]
_MEETINGS = {"add": 0, "sub": 1, "mul": 2}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_served(*dtypes: torch.dtype) -> bool:
    """Whether kernels are loaded and take codes of these dtypes.

    >>> import torch
    >>> from halfstep.numerics.native_codes import is_served
    >>> is_served(torch.int16)
    False
    """
    return native.is_loaded() and all(dtype in (torch.uint8, torch.int8) for dtype in dtypes)


@dataclass(frozen=True)
class Codes:
    """Codes of one scale and zero point."""

    dtype: torch.dtype
    scale: float
    zero_point: int

    def prepared(self) -> Any:
        """The codes as the kernels take them."""
        return native.kernels().operand(self.dtype, self.scale, self.zero_point)


@dataclass(frozen=True)
class Finish:
    """What becomes of float results: codes in [qmin, qmax], or floats in [lo, hi].

    dtype: that of the codes, or float32.
    scale, zero_point: those of the codes.
    """

    dtype: torch.dtype
    scale: float = 1.0
    zero_point: int = 0
    qmin: int = 0
    qmax: int = 0
    lo: float = -math.inf
    hi: float = math.inf

    def prepared(self) -> Any:
        """The finish as the kernels take it."""
        inverse = torch.tensor(self.scale, dtype=torch.float32).reciprocal().item()
        bounds = (float(self.qmin), float(self.qmax))
        given = (self.dtype, self.lo, self.hi, inverse, float(self.zero_point), *bounds)
        return native.kernels().finish(*given)


class Between:
    """Two operands met element by element: "add", "sub" or "mul"."""

    def __init__(self, kind: str, a: Codes, b: Codes, finish: Finish) -> None:
        """Prepare what does not depend on values."""
        self._dtype = finish.dtype
        self._prepared = native.kernels().meeting(
            _MEETINGS[kind], a.prepared(), b.prepared(), finish.prepared()
        )

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """The result; shapes broadcast, codes have the layout of the operand of full shape."""
        if a.shape == b.shape:
            out = _empty_like(a, self._dtype)
        else:
            shape = torch.broadcast_shapes(a.shape, b.shape)
            full = [x for x in (a, b) if x.shape == shape]
            out = _empty_like(full[0] if full else a.new_empty(shape), self._dtype)
            a, b = a.expand(shape), b.expand(shape)
        native.kernels().between(self._prepared, out, a, b, torch.get_num_threads())
        return out


class Requantize:
    """Codes of one scale as codes of another, or as clamped floats."""

    def __init__(self, x: Codes, finish: Finish) -> None:
        """Prepare what does not depend on values."""
        self._dtype = finish.dtype
        self._prepared = native.kernels().meeting(0, x.prepared(), x.prepared(), finish.prepared())

    def __call__(self, q: Tensor) -> Tensor:
        """The result, in q's layout if it is codes."""
        out = _empty_like(q, self._dtype)
        native.kernels().requantize(self._prepared, out, q, torch.get_num_threads())
        return out


def _empty_like(q: Tensor, dtype: torch.dtype) -> Tensor:
    """Codes keep their layout; floats are contiguous."""
    if dtype == torch.float32:
        return torch.empty(q.shape, dtype=dtype)
    return torch.empty_like(q, dtype=dtype)


def look_up(q: Tensor, table: Tensor) -> Tensor:
    """table[q - lowest]; see ``elementwise.look_up``. The table is contiguous, of 8-bit codes."""
    out = torch.empty_like(q, dtype=table.dtype)
    rows = table.shape[0] if table.ndim == 2 else 1
    native.kernels().look_up(out, q, table.data_ptr(), rows, torch.get_num_threads())
    return out


def dense(x: Tensor) -> Tensor:
    """x with the channels (axis 1) innermost in memory: itself, or a copy."""
    if x.ndim == 4 and 1 < x.shape[1] <= 4 and x.is_contiguous():  # images: twice as fast
        return torch.stack(x.unbind(1), -1).permute(0, 3, 1, 2)
    if x.ndim in CHANNELS_LAST:
        return x.contiguous(memory_format=CHANNELS_LAST[x.ndim])
    return x if x.ndim < 3 else x.transpose(1, -1).contiguous().transpose(1, -1)


def empty_dense(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Memory for a result whose channels (axis 1) are innermost."""
    if len(shape) in CHANNELS_LAST:
        return torch.empty(shape, dtype=dtype, memory_format=CHANNELS_LAST[len(shape)])
    if len(shape) < 3:
        return torch.empty(shape, dtype=dtype)
    return torch.empty((shape[0], shape[2], shape[1]), dtype=dtype).transpose(1, 2)


def three(sizes: Sequence[int], fill: int = 1) -> tuple[int, int, int]:
    """Sizes of 0 to 3 spatial dimensions as those of three."""
    full = (*[fill] * (3 - len(sizes)), *sizes)
    return (full[0], full[1], full[2])


# One dimension of a pool: the places of its windows, (first, end, count), and the step inside.
Windows: TypeAlias = tuple[Tensor, int]


@lru_cache(maxsize=512)
def sliding_windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int, *, ceil: bool, padded: bool
) -> Windows:
    """Windows of one dimension; ``padded`` counts padding in the divisor."""
    out = _count_windows(size, kernel, stride, padding, dilation, ceil=ceil)
    start = torch.arange(out) * stride - padding
    skipped = (-start).clamp(min=0)
    first = start + (skipped + dilation - 1) // dilation * dilation
    end = (start + (kernel - 1) * dilation + 1).clamp(max=size)
    count = window_sizes(size, out, kernel, stride, padding if padded else 0, padding)
    return torch.stack([first, end, count]).contiguous(), dilation


def _count_windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int, *, ceil: bool
) -> int:
    """How many windows there are; with ``ceil`` the last one may hang over, but starts inside."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return room // stride + 1
    out = -(-room // stride) + 1
    return out - 1 if (out - 1) * stride >= size + padding else out


@lru_cache(maxsize=512)
def adaptive_windows(size: int, out: int) -> Windows:
    """``out`` windows over a dimension: from floor(i * n / out) to ceil((i + 1) * n / out)."""
    window = torch.arange(out)
    first, end = window * size // out, -(-(window + 1) * size // out)
    return torch.stack([first, end, end - first]).contiguous(), 1


class Pool:
    """The mean or the largest code of each window, over the last spatial dimensions."""

    def __init__(self, x: Codes, finish: Finish | None, divisor: int | None = None) -> None:
        """Without a finish: the largest codes. ``divisor`` stands in for the counted places."""
        self._largest, self._divisor = finish is None, float(divisor or 0)
        self._finish = finish or Finish(x.dtype)
        self._prepared = (x.prepared(), self._finish.prepared())

    def __call__(self, x: Tensor, windows: Sequence[Windows]) -> Tensor:
        """x (N, C, ...) or (C, ...), a sequence of windows for each spatial dimension."""
        spatial, dtype = len(windows), self._finish.dtype
        batched = x if x.ndim == spatial + 2 else x.unsqueeze(0)
        source = dense(batched)
        sizes = [places.shape[1] for places, _ in windows]
        out = empty_dense((*batched.shape[:2], *sizes), dtype)
        filled = (*[adaptive_windows(1, 1)] * (3 - spatial), *windows)
        native.kernels().pool(
            *(*self._prepared, source.data_ptr(), out.data_ptr()),
            [[row.data_ptr() for row in places] for places, _ in filled],
            [step for _, step in filled],
            *(three(batched.shape[2:]), three(sizes), batched.shape[0], batched.shape[1]),
            *(self._divisor, self._largest, torch.get_num_threads()),
        )
        result = out.contiguous() if dtype == torch.float32 else out
        return result if batched is x else result.squeeze(0)


class Mean:
    """The mean over the middle of memory that is (outer, length, inner)."""

    def __init__(self, x: Codes, finish: Finish) -> None:
        """Prepare what does not depend on values."""
        self._dtype = finish.dtype
        self._prepared = (x.prepared(), finish.prepared())

    def __call__(self, x: Tensor, sizes: tuple[int, int, int]) -> Tensor:
        """outer * inner results; x is read from its address on."""
        out = torch.empty(sizes[0] * sizes[2], dtype=self._dtype)
        addresses = (x.data_ptr(), out.data_ptr())
        native.kernels().mean(*self._prepared, *addresses, sizes, torch.get_num_threads())
        return out


def quantize_rows(
    x: Tensor, shape: Sequence[int], dtype: torch.dtype, bounds: tuple[int, int], *, symmetric: bool
) -> Rows:
    """``rows.quantize_rows`` of contiguous float32 rows; ``shape`` is that of the scale."""
    codes = torch.empty(x.shape, dtype=dtype)
    scale = torch.empty(shape, dtype=torch.float32)
    zero_point = torch.empty(shape, dtype=torch.int32)
    rows = scale.numel()
    addresses = (codes.data_ptr(), scale.data_ptr(), zero_point.data_ptr())
    native.kernels().quantize_rows(
        *(dtype, bounds, symmetric, x.data_ptr(), addresses),
        *(rows, x.numel() // max(rows, 1), torch.get_num_threads()),
    )
    return codes, scale, zero_point
