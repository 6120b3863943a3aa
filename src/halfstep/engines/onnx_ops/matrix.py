"""Products of matrices: linear layers, matmul and its kin, attention."""

import math
from collections.abc import Sequence

import torch

from halfstep.engines.onnx_graph import Known, Ref, Shape, broadcast
from halfstep.engines.onnx_ops.activations import softmax
from halfstep.engines.onnx_ops.elementwise import add
from halfstep.engines.onnx_ops.moves import transpose, unsqueeze
from halfstep.engines.onnx_ops.reductions import any_
from halfstep.engines.onnx_ops.rows import linear_of_rows
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_ops.weights import int32_bias, is_dynamic, quantized_weight
from halfstep.engines.onnx_qdq import QdqGraph, turned
from halfstep.tensor import QTensor


@translates("aten.linear")
def linear(g: QdqGraph, x: Ref, weight: Ref, bias: Ref | None = None) -> Ref:
    """``x @ weight.t() + bias``, of (..., I) and (O, I)."""
    weight = quantized_weight(g, weight)
    if not isinstance(weight, Known) or not isinstance(weight.tensor, QTensor):
        return _in_float(g, x, weight, bias)
    if is_dynamic(g):
        return linear_of_rows(g, x, weight.name, weight.tensor, bias)
    if x.rank == 2 and g.edges.get(x.name) is not None:
        return _gemm(g, x, weight, bias)
    turned = g.turned_weight(weight.name, weight.tensor)
    y = g.op("MatMul", x, turned, shape=(*x.shape[:-1], weight.shape[0]))
    return y if bias is None else g.op("Add", y, bias)


def _in_float(g: QdqGraph, x: Ref, weight: Ref, bias: Ref | None) -> Ref:
    shape = (*x.shape[:-1], weight.shape[0])
    if x.rank == 2:
        return g.op("Gemm", x, weight, bias, shape=shape, transB=1)
    y = g.op("MatMul", x, transpose(g, g.value(weight), 0, 1), shape=shape)
    return y if bias is None else g.op("Add", y, bias)


def _gemm(g: QdqGraph, x: Ref, weight: Known, bias: Ref | None) -> Ref:
    """The form that runtimes run in integers with the bias."""
    floats, bias = int32_bias(g, x, weight, bias)
    return g.op("Gemm", x, floats, bias, shape=(x.shape[0], weight.shape[0]), transB=1)


@translates("aten.matmul", "aten.mm", "aten.bmm")
def matmul(g: QdqGraph, x: Ref, y: Ref) -> Ref:
    """The product of matrices, the axes before them broadcast."""
    y = quantized_weight(g, y)
    if is_dynamic(g) and isinstance(y, Known) and isinstance(y.tensor, QTensor):
        return linear_of_rows(g, x, y.name, turned(y.tensor), None)
    dtype = torch.promote_types(x.dtype, y.dtype)
    return g.op("MatMul", g.cast(x, dtype), g.cast(y, dtype), shape=_matmul_shape(x, y))


def _matmul_shape(x: Ref, y: Ref) -> Shape:
    rows = x.shape[-2:-1]
    columns = y.shape[-1:] if y.rank > 1 else ()
    return (*broadcast(x.shape[:-2], y.shape[:-2]), *rows, *columns)


@translates("aten.addmm", "aten.baddbmm")
def addmm(g: QdqGraph, bias: Ref, x: Ref, y: Ref, *, beta: float = 1, alpha: float = 1) -> Ref:
    """``beta * bias + alpha * (x @ y)``."""
    product = matmul(g, x, y)
    if alpha != 1:
        product = g.op("Mul", product, g.number(alpha, product.dtype))
    return add(g, product, bias, beta)


@translates("aten.einsum")
def einsum(g: QdqGraph, equation: str, operands: Sequence[Ref], *_: object, **__: object) -> Ref:
    """Sums of products by the names of axes."""
    equation = equation.replace(" ", "")
    if "->" not in equation or "." in equation:
        raise refuse(g, f"einsum({equation!r})", "write its output after -> without an ellipsis")
    given, wanted = equation.split("->")
    sizes: dict[str, int | None] = {}
    for names, ref in zip(given.split(","), operands, strict=True):
        sizes.update(zip(names, ref.shape, strict=True))
    shape = tuple(sizes[name] for name in wanted)
    return g.op("Einsum", *operands, shape=shape, equation=equation)


@translates("aten.scaled_dot_product_attention")
def attention(
    g: QdqGraph,
    query: Ref,
    key: Ref,
    value: Ref,
    mask: Ref | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Ref:
    """``softmax(query @ key.t() * scale + mask) @ value``; a row without any key gives zeros."""
    if enable_gqa or dropout:
        raise refuse(g, "attention with shared heads or dropout", "write its steps out")
    turned = transpose(g, key, -2, -1)
    scores = matmul(g, g.op("Mul", query, _scale(g, query, scale)), turned)
    mask = _causal(g, query, key) if causal else mask
    if mask is None:
        return matmul(g, softmax(g, scores, -1), value)
    if mask.dtype != torch.bool:
        return matmul(g, softmax(g, g.op("Add", scores, mask), -1), value)
    far = g.op("Where", mask, 0.0, g.number(torch.finfo(torch.float32).min, torch.float32),
               shape=mask.shape, dtype=torch.float32)  # fmt: skip
    found = matmul(g, softmax(g, g.op("Add", scores, far), -1), value)
    if causal:
        return found
    return g.op("Mul", found, g.cast(any_(g, mask, -1, True), torch.float32))


def _scale(g: QdqGraph, query: Ref, scale: float | None) -> Ref:
    if scale is not None:
        return g.number(scale, query.dtype)
    size = g.size(query, -1)
    if isinstance(size, int):
        return g.number(1 / math.sqrt(size), query.dtype)
    return g.op("Reciprocal", g.op("Sqrt", g.number(size, query.dtype)))


def _causal(g: QdqGraph, query: Ref, key: Ref) -> Ref:
    """Whether a key does not come after its query."""
    rows, columns = (
        g.op("Range", *(g.number(n, torch.int64) for n in (0, g.size(x, -2), 1)), shape=(None,))
        for x in (query, key)
    )
    return g.op("GreaterOrEqual", unsqueeze(g, rows, 1), columns, dtype=torch.bool)
