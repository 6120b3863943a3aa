"""The integer steps of a program, "int.linear" and the like, by name: the reference.

Codes are plain tensors, one element each, whose format an ``Edge`` says. A weight is a ``QTensor``.
``out`` is the edge of the result, or None for float32. Arguments stand in the order of the step.
What is computed, to the last bit, is in ``numerics`` and in docs/numerics.md.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from halfstep.graph import integer_codes, integer_products, integer_recurrent
from halfstep.graph.integer_tables import clamp_table, prelu_table
from halfstep.numerics import elementwise, embedding, pooling, rows
from halfstep.spec import QSpec
from halfstep.tensor import QTensor, quantize
from halfstep.tensor.contraction import operands_of


def embedding_rows(weight: QTensor, indices: Tensor) -> Tensor:
    """The rows of a weight, dequantized; float32."""
    return embedding.rows(*operands_of(weight), indices)


def embedding_bag(
    weight: QTensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    """A sum (mode 0), mean (1) or maximum (2) of rows for each bag; float32."""
    return embedding.bags(
        *operands_of(weight),
        indices,
        offsets,
        mode,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )


def dequantize_weight(weight: QTensor) -> Tensor:
    """The floats of a weight that an operator takes as floats."""
    return weight.floats()


def quantize_weight(w: Tensor, spec: QSpec) -> QTensor:
    """A weight that the model computes from others."""
    return quantize(w.detach(), spec)


INTEGER: dict[str, Callable[..., Any]] = {
    "int.quantize": integer_codes.quantize_codes,
    "int.dequantize": integer_codes.dequantize_codes,
    "int.quantize_rows": rows.quantize_rows,
    "int.linear": integer_products.linear,
    "int.conv": integer_products.conv,
    "int.conv_transpose": integer_products.conv_transpose,
    "int.matmul": integer_products.matmul,
    "int.linear_rows": integer_products.linear_rows,
    "int.conv_rows": integer_products.conv_rows,
    "int.conv_transpose_rows": integer_products.conv_transpose_rows,
    "int.add": integer_codes.binary(elementwise.add),
    "int.sub": integer_codes.binary(elementwise.sub),
    "int.mul": integer_codes.binary(elementwise.mul),
    "int.cat": integer_codes.cat,
    "int.avg_pool": integer_codes.avg_pool,
    "int.adaptive_avg_pool": integer_codes.adaptive_avg_pool,
    "int.mean": integer_codes.mean,
    "int.table": elementwise.look_up,
    "int.prelu_table": prelu_table,
    "int.clamp_table": clamp_table,
    "int.clamp": elementwise.clamp_codes,
    "int.max_pool": pooling.max_pool,
    "int.adaptive_max_pool": pooling.adaptive_max_pool,
    "int.embedding": embedding_rows,
    "int.embedding_bag": embedding_bag,
    "int.dequantize_weight": dequantize_weight,
    "int.quantize_weight": quantize_weight,
    "int.lstm": integer_recurrent.lstm,
    "int.gru": integer_recurrent.gru,
    "int.rnn": integer_recurrent.rnn,
}
