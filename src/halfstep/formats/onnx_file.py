"""ONNX files: their constants, quantized ones as such. Here alone is the package onnx known."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from halfstep.errors import FileFormatError, MissingExtraError
from halfstep.formats.onnx_weights import COUNTED, Constant, Node, quantized_constants
from halfstep.formats.stored import TensorFile
from halfstep.spec import QDType

_Proto: TypeAlias = Any  # messages of onnx, which is optional
# ONNX is a message without a magic number: ir_version first, then one of these fields.
_IR_VERSION: Final = 0x08
_SECOND_FIELDS: Final = frozenset(b"\x12\x1a\x22\x28\x32\x3a\x42\x72")
_MAX_SIZE: Final = 1 << 48


def is_onnx(head: bytes) -> bool:
    r"""Whether a file that starts with these bytes may be an ONNX model.

    >>> is_onnx(b"\x08\x07\x12"), is_onnx(b"PK\x03")
    (True, False)
    """
    return len(head) > 2 and head[0] == _IR_VERSION and head[1] < 64 and head[2] in _SECOND_FIELDS


def open_onnx(path: Path) -> TensorFile:
    """The constants of an ONNX model: plain ones, and weights of QDQ and QOperator graphs.

    Raises ``FileFormatError`` for a file that is truncated, corrupt or no model,
    ``MissingExtraError`` where the package onnx is not installed.
    """
    model = _read(path)
    tensors = dict(_initializers(model.graph))
    constants: dict[str, Constant] = {}
    unreadable: dict[str, str] = {}
    for name, tensor in tensors.items():
        found = _constant(tensor, path.parent)
        if isinstance(found, Constant):
            constants[name] = found
        else:
            unreadable[name] = found
    nodes = [_node(node) for node in model.graph.node]
    stored, more = quantized_constants(nodes, constants)
    return TensorFile(path, "onnx", stored, unreadable | more, about=_about(model, nodes))


def _onnx() -> Any:
    try:
        import onnx  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise MissingExtraError(
            "reading an ONNX file needs the package onnx: pip install 'halfstep[onnx]'"
        ) from error
    return onnx


def _read(path: Path) -> _Proto:
    onnx = _onnx()
    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own kinds, which differ by version
        raise FileFormatError(f"it is no intact ONNX model: {error}") from error
    if not model.graph.node and not model.graph.initializer:
        raise FileFormatError("it is an ONNX model without a graph, or no ONNX model")
    return model


def _initializers(graph: _Proto) -> Iterator[tuple[str, _Proto]]:
    """The tensors of a graph: its initializers, and what its Constant nodes give."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            yield from ((node.output[0], each.t) for each in node.attribute if each.name == "value")


def _node(node: _Proto) -> Node:
    numbers = {each.name: each.i for each in node.attribute}
    return Node(node.op_type, tuple(node.input), tuple(node.output), numbers)


def _about(model: _Proto, nodes: list[Node]) -> tuple[str, ...]:
    opsets = ", ".join(f"{each.domain or 'ai.onnx'} {each.version}" for each in model.opset_import)
    counts = Counter(node.op for node in nodes)
    quantized = ", ".join(f"{counts[op]} {op}" for op in COUNTED if counts[op])
    producer = f"{model.producer_name} {model.producer_version}".strip() or "an unnamed program"
    return (
        f"opset {opsets}; written by {producer}",
        f"nodes: {len(nodes)}, of them {quantized or 'none that quantizes'}",
    )


def _constant(tensor: _Proto, folder: Path) -> Constant | str:
    """The constant, or why it cannot be read."""
    onnx = _onnx()
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    shape = tuple(tensor.dims)
    if name not in _DTYPES:
        return f"its dtype {name} is not read"
    if min(shape, default=0) < 0 or math.prod(shape) >= _MAX_SIZE:
        raise FileFormatError(f"tensor {tensor.name[:200]!r} has the shape {shape[:20]}")
    dtype, qdtype = _DTYPES[name]
    bits = qdtype.bits if qdtype is not None else 8 * dtype.itemsize

    def load() -> Tensor:
        return _values(tensor, dtype, shape, folder)

    return Constant(shape, dtype, qdtype, -(-math.prod(shape) * bits // 8), load)


def _values(tensor: _Proto, dtype: torch.dtype, shape: tuple[int, ...], folder: Path) -> Tensor:
    try:
        array = _onnx().numpy_helper.to_array(tensor, str(folder))
    except Exception as error:  # numpy's, onnx's and the operating system's
        raise FileFormatError(f"its data cannot be read: {error}") from error
    if array.shape != shape:
        raise FileFormatError(f"its data has the shape {array.shape}, not {shape}")
    if array.dtype.itemsize == 1 and dtype in (torch.int8, torch.uint8):  # 2 and 4 bits as well
        return torch.from_numpy(array.astype(np.int8 if dtype == torch.int8 else np.uint8))
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return torch.from_numpy(bits.copy()).view(dtype).reshape(shape)


_DTYPES: Final[dict[str, tuple[torch.dtype, QDType | None]]] = {
    "FLOAT": (torch.float32, None),
    "DOUBLE": (torch.float64, None),
    "FLOAT16": (torch.float16, None),
    "BFLOAT16": (torch.bfloat16, None),
    "BOOL": (torch.bool, None),
    "INT64": (torch.int64, None),
    "UINT64": (torch.uint64, None),
    "UINT32": (torch.uint32, None),
    "COMPLEX64": (torch.complex64, None),
    "FLOAT8E4M3FN": (torch.float8_e4m3fn, None),
    "FLOAT8E5M2": (torch.float8_e5m2, None),
    **{
        name.upper(): (QDType.parse(name).storage, QDType.parse(name))
        for name in ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32")
    },
}
