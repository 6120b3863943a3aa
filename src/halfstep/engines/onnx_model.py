"""From an ONNX graph as plain data to the file format, by the onnx package."""

from typing import Any

import torch
from torch import Tensor

from halfstep.engines.onnx_graph import Initializer, Node
from halfstep.engines.onnx_translate import Translated
from halfstep.engines.onnx_types import element_of
from halfstep.errors import ArgumentError, MissingExtraError

_LARGEST_FILE = 2**31 - 1


def require_onnx() -> Any:
    """The onnx package.

    Raises ``MissingExtraError`` where it is not installed.
    """
    try:
        import onnx  # noqa: PLC0415, TID251  (optional)
    except ImportError:
        raise MissingExtraError(
            "writing ONNX needs the package onnx: install it with pip install 'halfstep[onnx]'"
        ) from None
    return onnx


def model_proto(translated: Translated, producer: str = "halfstep") -> Any:
    """The model as onnx holds it.

    Raises ``ArgumentError`` for one of 2 GB or more, and ``MissingExtraError`` without onnx.
    """
    onnx = require_onnx()
    graph = translated.graph
    size = sum(_bytes_of(each.tensor) for each in graph.initializers.values())
    if size > _LARGEST_FILE:
        raise ArgumentError(
            f"the model has {size / 2**30:.1f} GiB of weights, and an ONNX file holds 2: quantize "
            "more of them, or export its parts"
        )
    inside = onnx.helper.make_graph(
        [_node(onnx, node) for node in graph.nodes],
        producer,
        [_value(onnx, *given) for given in translated.inputs],
        [_value(onnx, *given) for given in translated.outputs],
        [_tensor(onnx, name, each) for name, each in graph.initializers.items()],
    )
    newest = onnx.defs.onnx_opset_version()
    if graph.opset > newest:
        raise ArgumentError(
            f"opset={graph.opset}: the newest that onnx {onnx.__version__} knows is {newest}"
        )
    opset = onnx.helper.make_opsetid("", graph.opset)
    version = onnx.helper.find_min_ir_version_for([opset])
    return onnx.helper.make_model(
        inside, opset_imports=[opset], ir_version=version, producer_name=producer
    )


def _bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _node(onnx: Any, node: Node) -> Any:
    return onnx.helper.make_node(
        node.op, node.inputs, node.outputs, name=node.name, **dict(node.attributes)
    )


def _value(onnx: Any, name: str, dtype: Any, sizes: tuple[Any, ...]) -> Any:
    return onnx.helper.make_tensor_value_info(name, element_of(dtype, name), list(sizes))


def _tensor(onnx: Any, name: str, stored: Initializer) -> Any:
    raw = stored.tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return onnx.TensorProto(
        name=name, data_type=stored.element, dims=list(stored.shape), raw_data=raw
    )
