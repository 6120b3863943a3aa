"""The native linear layers and convolutions: exact sums of products of 8-bit codes.

    acc = sum of (qx - zx) * (qw - zw)                      exact: 32 bits hold it
    y   = (float(acc) * sx) * sw + bias;  y = fma(qr - zr, sr, y);  finish

Weights are packed once, into the order in which the kernels read them. The kernels have exact code
at every instruction level, so results do not depend on the processor.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halfstep.numerics import native
from halfstep.numerics.native_codes import Codes, Finish, dense, empty_dense, three

BLOCK, STEP, CHANNELS = 16, 4, 64
# |acc| has to stay below 2^31; a centred uint8 activation is at most 255.
_LARGEST_SUM = (2**31 - 1) // 255


@dataclass(frozen=True)
class Packed:
    """Weights in the order of the kernels, and what belongs to each output.

    codes, sums (of the weights of an output), scale, bias: filled up to whole blocks of outputs.
    channels and outputs are those of a group.
    """

    codes: Tensor
    sums: Tensor
    scale: Tensor
    bias: Tensor
    channels: int
    outputs: int
    groups: int

    @property
    def is_depthwise(self) -> bool:
        """Whether every channel has one output of its own."""
        return self.channels == self.outputs == 1 < self.groups


def pack(w: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor | None) -> Packed | None:
    """Pack integers w (groups, outputs, taps, channels) of 8 bits, or None if they do not fit.

    scale and zero_point have one element, or one for each output of all groups. Weights are centred
    first, so a zero point is served as long as ``w - zero_point`` fits into int8.

    >>> import torch
    >>> from halfstep.numerics.native_products import pack
    >>> w, one = torch.ones(1, 5, 1, 7, dtype=torch.int8), torch.ones(1)
    >>> pack(w, one, torch.zeros(1, dtype=torch.int32), None).codes.shape
    torch.Size([1, 1, 2, 16, 4])
    """
    groups, outputs, _, channels = w.shape
    shape = (groups, outputs, 1, 1)
    centred = w.to(torch.int32) - zero_point.flatten().expand(groups * outputs).view(shape)
    sums = centred.sum((2, 3), dtype=torch.int64)
    largest = centred.abs().sum((2, 3), dtype=torch.int64)
    fits = centred.numel() == 0 or -128 <= int(centred.min()) <= int(centred.max()) <= 127
    if not fits or int(largest.max() if largest.numel() else 0) > _LARGEST_SUM:
        return None
    each = scale.float().flatten().expand(groups * outputs).reshape(groups, outputs)
    # -0.0 is what changes no float that it is added to.
    added = torch.full((groups, outputs), -0.0) if bias is None else bias.float().view_as(each)
    if channels == outputs == 1 < groups:
        codes = _channels(centred.to(torch.int8).view(groups, -1))
        sums, each, added = (_filled(t.view(1, -1), CHANNELS) for t in (sums, each, added))
    else:
        codes = _blocks(centred.to(torch.int8))
        sums, each, added = (_filled(t, BLOCK) for t in (sums, each, added))
    return Packed(codes, sums.to(torch.int32), each, added, channels, outputs, groups)


def _channels(w: Tensor) -> Tensor:
    """Depthwise weights (C, taps), interleaved as csrc/kernels/depthwise.hpp describes."""
    filled = F.pad(w, (0, -w.shape[1] % STEP, 0, -w.shape[0] % CHANNELS))
    parts = filled.view(-1, 4, 4, 4, filled.shape[1] // STEP, STEP)
    return parts.permute(0, 4, 2, 1, 3, 5).contiguous()


def _blocks(w: Tensor) -> Tensor:
    """(groups, blocks, steps, BLOCK, STEP) of (groups, outputs, taps, channels)."""
    rows = w.reshape(*w.shape[:2], math.prod(w.shape[2:]))
    rows = F.pad(rows, (0, -rows.shape[2] % STEP, 0, -rows.shape[1] % BLOCK))
    blocks = rows.reshape(len(w), -1, BLOCK, rows.shape[2] // STEP, STEP)
    return blocks.transpose(2, 3).contiguous()


def _filled(columns: Tensor, size: int) -> Tensor:
    """One entry for each output of each whole block."""
    return F.pad(columns, (0, -columns.shape[1] % size)).flatten().contiguous()


@dataclass(frozen=True)
class Geometry:
    """How taps move over 1 to 3 spatial dimensions; with ``output_padding`` transposed."""

    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] | None = None

    def prepared(self) -> Any:
        """The geometry as the kernels take it."""
        padding = three(self.padding, 0)
        sides = (three(self.kernel), three(self.stride), padding, three(self.dilation))
        return native.kernels().geometry(*sides, self.output_padding is not None)

    def output_sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The spatial sizes of the result."""
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        steps = zip(sizes, spans, self.stride, self.padding, strict=True)
        if self.output_padding is None:
            return tuple((n + 2 * p - span) // s + 1 for n, span, s, p in steps)
        extra = self.output_padding
        return tuple(
            (n - 1) * s - 2 * p + span + extra[i] for i, (n, span, s, p) in enumerate(steps)
        )


class Product:
    """A linear layer or convolution with its weights packed.

    x and residual are codes of those formats. A residual has the shape of the result.
    """

    def __init__(
        self,
        packed: Packed,
        geometry: Geometry,
        x: Codes,
        residual: Codes | None,
        finish: Finish,
    ) -> None:
        """Prepare everything that does not depend on the values of x."""
        self._geometry, self._dtype = geometry, finish.dtype
        self._outputs, self._ndim = packed.outputs * packed.groups, len(geometry.kernel) + 2
        # Signed codes are made unsigned by adding 128.
        zero_point = x.zero_point + (128 if x.dtype == torch.int8 else 0)
        start = packed.sums * -zero_point
        self._held = (packed.codes, packed.sums, start, packed.scale, packed.bias)
        contraction = native.kernels().contraction(
            [tensor.data_ptr() for tensor in self._held],
            (packed.channels, packed.outputs, packed.groups),
            *(geometry.prepared(), packed.is_depthwise, 0),
            *(x.prepared(), (residual or x).prepared(), finish.prepared()),
        )
        self._run: Callable[..., None] = contraction.run
        self._places: dict[torch.Size, tuple[Any, ...]] = {}

    def linear(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x (..., I) to (..., O)."""
        x = x.contiguous()
        shape = (*x.shape[:-1], self._outputs)
        out = torch.empty(shape, dtype=self._dtype)
        rows = out.numel() // max(self._outputs, 1)
        held = None if residual is None else residual.contiguous()
        self._run(
            *(x.data_ptr(), 0 if held is None else held.data_ptr(), out.data_ptr()),
            *(0, 0, 1, rows, (1, 1, 1), (1, 1, 1), torch.get_num_threads()),
        )
        return out

    def linear_rows(self, x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        """The same where every row has a scale and zero point of its own."""
        x, scale, zero_point = x.contiguous(), scale.contiguous(), zero_point.contiguous()
        out = torch.empty((*x.shape[:-1], self._outputs), dtype=self._dtype)
        self._run(
            *(x.data_ptr(), 0, out.data_ptr(), scale.data_ptr(), zero_point.data_ptr()),
            *(1, scale.numel(), (1, 1, 1), (1, 1, 1), torch.get_num_threads()),
        )
        return out

    def conv(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x (N, C, ...) to (N, O, ...), channels innermost; floats are contiguous."""
        if x.ndim != self._ndim:  # a sample without a batch
            return self.conv(x[None], None if residual is None else residual[None])[0]
        shape, sizes, out_sizes = self._places.get(x.shape) or self._place(x.shape)
        source, out = dense(x), empty_dense(shape, self._dtype)
        held = None if residual is None else dense(residual)
        self._run(
            *(source.data_ptr(), 0 if held is None else held.data_ptr(), out.data_ptr()),
            *(0, 0, 1, shape[0], sizes, out_sizes, torch.get_num_threads()),
        )
        return out.contiguous() if self._dtype == torch.float32 else out

    def conv_rows(self, x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        """The same where every sample has a scale and zero point of its own."""
        shape, sizes, out_sizes = self._places.get(x.shape) or self._place(x.shape)
        source, out = dense(x), empty_dense(shape, self._dtype)
        scale, zero_point = scale.contiguous(), zero_point.contiguous()
        self._run(
            *(source.data_ptr(), 0, out.data_ptr(), scale.data_ptr(), zero_point.data_ptr()),
            *(math.prod(out_sizes), shape[0], sizes, out_sizes, torch.get_num_threads()),
        )
        return out.contiguous()

    def _place(self, shape: torch.Size) -> tuple[Any, ...]:
        """The result's shape, and the spatial sizes before and after; kept for the next call."""
        spatial = self._geometry.output_sizes(shape[2:])
        places = ((shape[0], self._outputs, *spatial), three(shape[2:]), three(spatial))
        self._places[shape] = places
        return places


_LONGEST = (2**31 - 1) // (255 * 255)  # summed products of 8-bit codes that 32 bits hold


class Multiply:
    """a @ b for codes of any zero points, as ``torch.matmul`` takes shapes of two or more."""

    def __init__(self, a: Codes, b: Codes, finish: Finish) -> None:
        """Prepare what does not depend on values."""
        self._dtype = finish.dtype
        self._prepared = (a.prepared(), b.prepared(), finish.prepared())

    def __call__(self, a: Tensor, b: Tensor) -> Tensor | None:
        """(..., M, N), or None where 32 bits may not hold the sums."""
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        if inner > _LONGEST:
            return None
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = torch.empty((*batch, rows, columns), dtype=self._dtype)
        a = a.expand(*batch, rows, inner).contiguous()
        b = b.expand(*batch, inner, columns).reshape(-1, inner, columns)
        native.kernels().multiply(
            *self._prepared,
            (a.data_ptr(), b.data_ptr(), out.data_ptr()),
            (b.shape[0], rows, inner, columns),
            b.stride(),
            torch.get_num_threads(),
        )
        return out
