"""torch's functional forms of a quantized tensor's questions, and of leaving it."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from halfstep.tensor.axes import Kind
from halfstep.tensor.dispatch import function, operator, to_float
from halfstep.tensor.moves import kind_of
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


@function(
    "int_repr",
    "q_scale",
    "q_zero_point",
    "q_per_channel_scales",
    "q_per_channel_zero_points",
    "q_per_channel_axis",
)
def answer(func: Any, input: QTensor) -> Any:  # noqa: A002 (torch's name)
    """``torch.int_repr(q)`` and the like: the method of the same name."""
    return getattr(input, func.__name__)()


@function("dequantize")
def dequantize(func: Any, *tensors: Any, **named: Any) -> Any:
    """``torch.dequantize`` of a tensor or of a list of them."""
    (given,) = (*tensors, *named.values())
    return [to_float(one) for one in given] if isinstance(given, list | tuple) else to_float(given)


@operator(aten.embedding.default)
def embedding(func: Any, weight: Any, indices: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Rows of a quantized table: only those that are asked for are dequantized."""
    if not isinstance(weight, QTensor) or weight.ndim != 2 or kind_of(weight, 0) is Kind.CUT:
        return NotImplemented
    rows = aten.index_select.default(weight, 0, indices.reshape(-1))
    return rows.floats().reshape(*indices.shape, *weight.shape[1:])


def collate(batch: list[Tensor], *, collate_fn_map: object = None) -> Tensor:
    """How a DataLoader makes a batch of quantized tensors, in its workers too: stacked."""
    return torch.stack(batch)


default_collate_fn_map[QTensor] = collate
