"""Pooling: windows, and windows chosen so that a given size comes out."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from halfstep.engines.onnx_graph import Number, Ref
from halfstep.engines.onnx_ops.choices import sliced
from halfstep.engines.onnx_ops.convolution import spread
from halfstep.engines.onnx_ops.moves import cat
from halfstep.engines.onnx_ops.reductions import amax, mean
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

_Reduce: TypeAlias = Callable[..., Ref]


@translates("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d")
def max_pool(
    g: QdqGraph,
    x: Ref,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Ref:
    """The largest of each window."""
    options = _options(g, kernel, stride, padding, ceil_mode, x)
    options["dilations"] = spread(dilation, len(options["kernel_shape"]))
    return _pooled(g, "MaxPool", x, options)


@translates("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(
    g: QdqGraph,
    x: Ref,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Ref:
    """The mean of each window."""
    options = _options(g, kernel, stride, padding, ceil_mode, x)
    if ceil_mode and count_include_pad and any(options["pads"]):
        raise refuse(
            g, "average pooling with ceil_mode over padded windows", "set count_include_pad=False"
        )
    if ceil_mode and divisor is not None:
        raise refuse(g, "average pooling with ceil_mode and a divisor", "leave one of them out")
    options["count_include_pad"] = int(
        (count_include_pad and any(options["pads"])) or divisor is not None
    )
    pooled = _pooled(g, "AveragePool", x, options)
    if divisor is None:
        return pooled
    count = 1
    for size in options["kernel_shape"]:
        count *= size
    return g.op("Mul", pooled, g.number(count / divisor, x.dtype))


def _options(
    g: QdqGraph,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    x: Ref,
) -> dict[str, Any]:
    count = len(kernel) if isinstance(kernel, tuple) and len(kernel) > 1 else x.rank - 2
    if x.rank != count + 2:
        raise refuse(g, "pooling without a batch", "add a first dimension")
    kernels = spread(kernel, count)
    return {
        "kernel_shape": kernels,
        "strides": spread(stride, count) if stride != () else kernels,
        "pads": spread(padding, count) * 2,
        "ceil_mode": int(ceil_mode),
    }


def _pooled(g: QdqGraph, op: str, x: Ref, options: dict[str, Any]) -> Ref:
    shape = (*x.shape[:2], *[None] * (x.rank - 2))
    return g.op(op, x, shape=shape, **options)


@translates("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d")
def adaptive_avg_pool(g: QdqGraph, x: Ref, size: Any) -> Ref:
    """Means over windows that together cover the input."""
    sizes = spread(size, x.rank - 2) if not isinstance(size, Number) else (size,)
    if all(n == 1 for n in sizes):
        return g.op("GlobalAveragePool", x, shape=(*x.shape[:2], *sizes))
    return _adaptive(g, x, sizes, lambda part, axis: mean(g, part, axis, True))


@translates("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(g: QdqGraph, x: Ref, size: Any) -> tuple[Ref, Ref]:
    """The largest over windows that together cover the input; where they stand is not told."""
    sizes = spread(size, x.rank - 2)
    found = _adaptive(g, x, sizes, lambda part, axis: amax(g, part, axis, True))
    return found, found


def _adaptive(g: QdqGraph, x: Ref, sizes: Sequence[Any], reduction: _Reduce) -> Ref:
    """One axis after the other: windows [i n / size], [(i + 1) n / size] upwards of each."""
    lengths = [g.size(x, axis) for axis in range(2, x.rank)]
    for axis, (size, length) in enumerate(zip(sizes, lengths, strict=True), start=2):
        if size is None or size == length:
            continue
        if isinstance(size, Number):
            raise refuse(g, "adaptive pooling to a size that is computed", "give a fixed size")
        parts = [
            reduction(sliced(g, x, axis, *_window(g, length, index, size)), axis)
            for index in range(size)
        ]
        x = cat(g, parts, axis) if len(parts) > 1 else parts[0]
    return x


def _window(
    g: QdqGraph, length: "int | Number", index: int, size: int
) -> tuple["int | Number", "int | Number"]:
    """From ``floor(index * length / size)`` to ``ceil((index + 1) * length / size)``."""
    if isinstance(length, int):
        return index * length // size, -(-(index + 1) * length // size)
    start = g.op("Div", g.op("Mul", length, [index]), [size])
    end = g.op("Add", g.op("Mul", length, [index + 1]), [size - 1])
    end = g.op("Div", end, [size])
    first, last = (Number(ref.name, torch.int64, (1,)) for ref in (start, end))
    return 0 if index == 0 else first, last
