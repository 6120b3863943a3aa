"""A calibrated program as an ONNX file."""

from importlib.util import find_spec

import torch
from torch import nn

from halfstep.engines.onnx_model import model_proto, require_onnx
from halfstep.engines.onnx_runtime import start
from halfstep.engines.onnx_translate import Translated, translate
from halfstep.errors import ArgumentError
from halfstep.graph.quantized import Quantized


def onnx_bytes(quantized: Quantized, module: nn.Module, opset: int | None = None) -> bytes:
    """The file's content, with QuantizeLinear and DequantizeLinear where the integers are.

    opset: the version of ONNX's operators; by default the lowest that holds the formats.

    ONNX's own checker has passed it, and ONNX Runtime has run it once, where that is installed.

    Raises ``ArgumentError`` for an operator that has no form in ONNX and for a graph that one of
    the two refuses; ``MissingExtraError`` without the package onnx.

    >>> import torch
    >>> from halfstep.engines.onnx_export import onnx_bytes
    >>> from halfstep.graph.export import export
    >>> model = torch.nn.Linear(2, 1)
    >>> b"Gemm" in onnx_bytes(Quantized(export(model, (torch.ones(3, 2),))), model)
    True
    """
    onnx = require_onnx()
    translated = translate(quantized, module, opset)
    proto = model_proto(translated)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ArgumentError(f"the checker of ONNX refuses the graph: {error}") from error
    content: bytes = proto.SerializeToString()
    if find_spec("onnxruntime") is not None:
        _run_once(content, translated, quantized)
    return content


def _run_once(content: bytes, translated: Translated, quantized: Quantized) -> None:
    """Load the file and, where it is known how large its inputs were, run it on zeros."""
    shapes = [quantized.shapes.get(name) for name, *_ in translated.inputs]
    examples = [
        torch.zeros(shape, dtype=dtype)
        for shape, (_, dtype, _) in zip(shapes, translated.inputs, strict=True)
        if shape is not None
    ]
    try:
        session = start(content, torch.get_num_threads())
        if len(examples) == len(shapes):
            session(examples)
    except Exception as error:
        why = str(error).strip().partition("\n")[0]
        raise ArgumentError(f"ONNX Runtime does not run the graph: {why}") from error
