"""Weights that are kept as integers, and the biases beside them."""

import torch

from halfstep.engines.onnx_graph import Known, Ref
from halfstep.engines.onnx_qdq import QdqGraph, with_int32_bias
from halfstep.graph.quantized import Execution
from halfstep.spec import PerChannel, PerTensor
from halfstep.tensor import QTensor
from halfstep.tensor.create import quantize


def is_dynamic(g: QdqGraph) -> bool:
    """Whether the step that is written finds the scales of its input while the model runs."""
    return g.decision.execution is Execution.DYNAMIC


def quantized_weight(g: QdqGraph, weight: Ref) -> Ref:
    """The weight as integers, where the step asks for it and steps before computed it."""
    spec = g.decision.weight
    if spec is None or not isinstance(weight, Known) or isinstance(weight.tensor, QTensor):
        return weight
    return Known(weight.name, weight.dtype, weight.shape, quantize(weight.tensor, spec))


def int32_bias(g: QdqGraph, x: Ref, weight: Known, bias: Ref | None) -> tuple[Ref, Ref | None]:
    """The weight as floats and the bias as int32 in the steps of the product, if it can be.

    Otherwise the bias stays in float: where x has no scale, or the weight one for each group.
    """
    edge, q = g.edges.get(x.name), weight.tensor
    if edge is None or not isinstance(q, QTensor) or not _has_one_per_channel(q):
        return g.value(weight), bias
    if not isinstance(bias, Known) or isinstance(bias.tensor, QTensor):
        return g.value(weight), bias
    fitting, codes, scale = with_int32_bias(q, bias.tensor, edge.scale)
    places = {"axis": 0} if scale.ndim else {}
    given = g.store(bias.name, codes), g.store(f"{bias.name}.scale", scale)
    found = g.op("DequantizeLinear", *given, shape=bias.shape, dtype=torch.float32, **places)
    if fitting is q:
        return g.value(weight), found
    return g.weight(f"{weight.name}.coarser", fitting), found


def _has_one_per_channel(q: QTensor) -> bool:
    return q.spec.granularity in (PerTensor(), PerChannel(0)) and not q.spec.float_zero_point
