"""ONNX models run in ONNX Runtime, as the tests of the engines need it."""

from typing import Any

import onnx
import onnxruntime
from torch import Tensor, nn

from halfstep.engines.onnx_model import model_proto
from halfstep.engines.onnx_runtime import start
from halfstep.engines.onnx_translate import translate
from halfstep.graph.convert import convert
from halfstep.graph.frozen import Frozen
from halfstep.graph.quantized import Quantized
from halfstep.graph.trees import Branch, match
from halfstep.spec import Capabilities, int8, int16, uint8, uint16

EVERYTHING = frozenset(
    {
        *("linear", "conv", "conv_transpose", "matmul", "add", "sub", "mul", "cat", "move"),
        *("avg_pool", "adaptive_avg_pool", "max_pool", "mean", "clamp", "table"),
        *("linear_rows", "conv_rows", "conv_transpose_rows", "embedding", "embedding_bag"),
        *("lstm", "gru", "rnn"),
    }
)


def onnx_model(quantized: Quantized, module: nn.Module, opset: int | None = None) -> Any:
    """The model, checked with shape inference."""
    model = model_proto(translate(quantized, module, opset))
    onnx.checker.check_model(model, full_check=True)
    return model


def run_onnx(model: Any, quantized: Quantized, given: Branch) -> list[Tensor]:
    """The outputs of ONNX Runtime."""
    session = start(model.SerializeToString(), 1)
    tensors = match(quantized.program.arguments, given)
    by_name = {value.name: tensor for value, tensor in tensors}
    return list(session([by_name[each.value.name] for each in quantized.program.inputs]))


def reference(quantized: Quantized, module: nn.Module, given: Branch) -> Any:
    """What the formulas give, with the same Q and DQ as in the file."""
    capabilities = Capabilities(
        engine="reference",
        integer_ops=EVERYTHING,
        dtypes=(int8, uint8, int16, uint16),
        fuses_residual=False,
    )
    return Frozen(convert(quantized, capabilities)).run(module, given)


def kernels(model: Any, path: Any) -> dict[str, int]:
    """How often ONNX Runtime uses each kernel."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: dict[str, int] = {}
    for node in onnx.load(path).graph.node:
        found[node.op_type] = found.get(node.op_type, 0) + 1
    return found
