"""Convolutions, also transposed, in 1 to 3 dimensions."""

from collections.abc import Sequence
from typing import Any

from halfstep.engines.onnx_graph import Known, Ref, Shape
from halfstep.engines.onnx_ops.moves import unsqueeze
from halfstep.engines.onnx_ops.rows import rounded_rows
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_ops.weights import int32_bias, is_dynamic, quantized_weight
from halfstep.engines.onnx_qdq import QdqGraph


def spread(value: Any, count: int) -> tuple[int, ...]:
    """One number for each dimension."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * count if len(numbers) == 1 else numbers


@translates("aten.conv1d", "aten.conv2d", "aten.conv3d")
def conv(
    g: QdqGraph,
    x: Ref,
    weight: Ref,
    bias: Ref | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Ref:
    """(N, C, ...) and (O, C / groups, ...) to (N, O, ...)."""
    count = weight.rank - 2
    if x.rank == count + 1:
        y = conv(g, unsqueeze(g, x, 0), weight, bias, stride, padding, dilation, groups)
        return g.op("Squeeze", y, [0], shape=y.shape[1:])
    dilations = spread(dilation, count)
    pads = _pads(g, weight, padding, dilations)
    if x.name in g.pads:
        x, more = g.pads[x.name]
        pads = tuple(a + b for a, b in zip(pads, more, strict=True))
    strides = spread(stride, count)
    shape = (x.shape[0], weight.shape[0], *_sizes(x, weight, strides, pads, dilations))
    x, weight, bias = _operands(g, x, weight, bias)
    options: dict[str, Any] = {
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "group": groups,
    }
    kernel = tuple(weight.shape[2:])
    return g.op("Conv", x, weight, bias, shape=shape, kernel_shape=kernel, **options)


def _operands(g: QdqGraph, x: Ref, weight: Ref, bias: Ref | None) -> tuple[Ref, Ref, Ref | None]:
    """Input, weight and bias as the step is to see them."""
    weight = quantized_weight(g, weight)
    if is_dynamic(g):
        x = rounded_rows(g, x, g.decision.input, list(range(1, x.rank)))
    elif isinstance(weight, Known):
        return x, *int32_bias(g, x, weight, bias)
    return x, g.value(weight), bias


def _pads(g: QdqGraph, weight: Ref, padding: Any, dilations: Sequence[int]) -> tuple[int, ...]:
    """Zeros before every dimension, then after every dimension."""
    if padding == "valid":
        padding = 0
    if padding != "same":
        each = spread(padding, weight.rank - 2)
        return each + each
    if None in weight.shape[2:]:
        raise refuse(g, "a kernel of unknown size", "give the kernel a fixed size")
    total = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True) if k]
    return (*(n // 2 for n in total), *(n - n // 2 for n in total))


def _sizes(
    x: Ref, weight: Ref, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> Shape:
    count = len(strides)
    both = [pads[i] + pads[i + count] for i in range(count)]
    rows = zip(x.shape[2:], weight.shape[2:], strides, both, dilations, strict=True)
    return tuple(
        None if n is None or k is None else (n + p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in rows
    )


@translates("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def conv_transpose(
    g: QdqGraph,
    x: Ref,
    weight: Ref,
    bias: Ref | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Ref:
    """(N, C, ...) and (C, O / groups, ...) to (N, O, ...)."""
    count = weight.rank - 2
    weight = quantized_weight(g, weight)
    if is_dynamic(g):
        x = rounded_rows(g, x, g.decision.input, list(range(1, x.rank)))
    channels = weight.shape[1]
    shape = (x.shape[0], None if channels is None else channels * groups, *[None] * count)
    return g.op(
        "ConvTranspose",
        x,
        weight,
        bias,
        shape=shape,
        kernel_shape=tuple(weight.shape[2:]),
        strides=spread(stride, count),
        pads=spread(padding, count) * 2,
        output_padding=spread(output_padding, count),
        dilations=spread(dilation, count),
        group=groups,
    )
