"""The values of one quantized tensor, and where they lie in its format."""

import math
from typing import Any

import torch
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.graph.integer_codes import operand
from halfstep.numerics import ops
from halfstep.report.channels import channel_ranges, dead_channels, outlier_channels
from halfstep.report.histogram import GrowingHistogram
from halfstep.report.records import Values
from halfstep.report.weights import inside
from halfstep.spec import PerChannel, QSpec
from halfstep.tensor import QTensor

# Of the integers of a weight, so many rows and columns are shown.
_SHOWN = 64
# Beyond this in magnitude a bias has no int32, which ONNX files keep it in.
_INT32 = float(2**31 - 1)


class Activations:
    """What was seen of a value that is codes: collected batch by batch, no value is kept.

    edge: the format of its codes. spec: of its rows, where those get their scales one by one.
    axis: of its channels, counted from the front or the back.
    """

    def __init__(self, name: str, edge: Edge | None, spec: QSpec | None, axis: int) -> None:
        self._name, self._edge, self._spec, self._axis = name, edge, spec, axis
        self._histogram = GrowingHistogram()
        self._shape: tuple[int, ...] = ()
        self._ranges: tuple[Tensor, Tensor] | None = None
        self._seen = self._saturated = 0
        self._low, self._high = math.inf, -math.inf

    def add(self, x: Tensor) -> None:
        """Take in the floats of one run."""
        if x.numel() == 0 or not x.ndim:
            return
        axis = self._axis % x.ndim
        low, high = channel_ranges(x, axis)
        least, most = float(low.min()), float(high.max())
        self._histogram.add(x, least, most)
        self._saturated += self._beyond(x, least, most)
        self._seen += x.numel()
        self._shape = tuple(x.shape)
        self._low, self._high = min(self._low, least), max(self._high, most)
        self._ranges = self._merged(low, high)

    def _merged(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The ranges of all runs; none where the number of channels changes: those are none."""
        if self._ranges is None:
            return low, high
        if self._ranges[0].shape != low.shape:
            return low[:0], high[:0]
        return torch.minimum(self._ranges[0], low), torch.maximum(self._ranges[1], high)

    def _beyond(self, x: Tensor, least: float, most: float) -> int:
        """How many values need a code beyond the format's bounds."""
        edge = self._edge
        if edge is None:
            return 0
        low, high = _reach(edge)
        if least >= low - edge.scale / 4 and most <= high + edge.scale / 4:
            return 0
        values = operand(x.to(torch.float32), edge)
        kept = ops.fake_quantize_with_mask(*values, edge.qmin, edge.qmax)[1]
        return x.numel() - int(kept.sum())

    def record(self) -> Values | None:
        """What was seen; None before the first run."""
        if self._ranges is None:
            return None
        low, high = (tuple(ends.tolist()) for ends in self._ranges)
        edge = self._edge
        reach = (self._low, self._high) if edge is None else _reach(edge)
        return Values(
            name=self._name,
            shape=self._shape,
            spec=str(self._spec if edge is None else edge.spec),
            scale=() if edge is None else (edge.scale,),
            zero_point=() if edge is None else (edge.zero_point,),
            low=self._low,
            high=self._high,
            grid_low=reach[0],
            grid_high=reach[1],
            saturated=self._saturated / self._seen,
            histogram=self._histogram.record(),
            axis=self._axis % len(self._shape),
            channel_low=low,
            channel_high=high,
            dead=dead_channels(low, high),
            outliers=outlier_channels(low, high),
        )


def _reach(edge: Edge) -> tuple[float, float]:
    """The least and the greatest value that has a code."""
    low, high = (code - edge.zero_point for code in (edge.qmin, edge.qmax))
    return low * edge.scale, high * edge.scale


def weight_values(name: str, w: Tensor, q: QTensor) -> Values:
    """What is to be known of a weight, from its floats and its integers.

    >>> import halfstep as hs, torch
    >>> from halfstep.report.values import weight_values
    >>> w = torch.tensor([[0.5, -1.0], [0.0, 0.0]])
    >>> found = weight_values("fc.weight", w, hs.quantize(w, hs.QSpec(hs.int8, hs.PerChannel(0))))
    >>> found.dead, found.channel_low, found.saturated
    ((1,), (-1.0, 0.0), 0.0)
    """
    axis = q.axis if isinstance(q.spec.granularity, PerChannel) and q.axis is not None else 0
    low, high = (tuple(ends.tolist()) for ends in channel_ranges(w, axis))
    histogram = GrowingHistogram()
    histogram.add(w, min(low), max(high))
    kept = inside(w, q)
    grid = _grid(q)
    return Values(
        name=name,
        shape=tuple(q.shape),
        spec=str(q.spec),
        scale=_flat(q.scale),
        zero_point=tuple(int(z) for z in _flat(q.zero_point)),
        low=min(low),
        high=max(high),
        grid_low=grid[0],
        grid_high=grid[1],
        saturated=1 - float(kept.sum()) / w.numel(),
        histogram=histogram.record(),
        axis=axis,
        channel_low=low,
        channel_high=high,
        dead=dead_channels(low, high),
        outliers=outlier_channels(low, high),
        integers=_first(q),
    )


def _grid(q: QTensor) -> tuple[float, float]:
    """The outermost values that any scale reaches."""
    scale, zero_point = q.scale.double(), q.zero_point.double()
    low = ((q.spec.qmin - zero_point) * scale).min()
    return float(low), float(((q.spec.qmax - zero_point) * scale).max())


def _first(q: QTensor) -> tuple[tuple[int, ...], ...]:
    """The first rows of integers, as a matrix with the first axis down."""
    rows = q.ints[:_SHOWN]
    return tuple(map(tuple, rows.reshape(rows.shape[0], -1)[:, :_SHOWN].tolist()))


def _flat(x: Tensor) -> tuple[Any, ...]:
    return tuple(x.flatten().tolist())


def bias_overflow(bias: Tensor, x_scale: float, q: QTensor) -> tuple[int, ...]:
    """The channels whose bias has no int32: ``|round(bias / (sx * sw))| > 2^31 - 1``.

    Only ONNX files keep a bias so; none where a channel of the weight has several scales.

    >>> import halfstep as hs, torch
    >>> from halfstep.report.values import bias_overflow
    >>> q = hs.quantize(torch.ones(2, 3), hs.int8, scale=1e-6, zero_point=0)
    >>> bias_overflow(torch.tensor([1.0, 3.0]), 1e-3, q)
    (1,)
    """
    scale = q.scale.double().flatten()
    if scale.numel() not in (1, bias.numel()):
        return ()
    steps = (bias.double() / (x_scale * scale)).round().abs()
    return tuple((steps > _INT32).nonzero().flatten().tolist())
