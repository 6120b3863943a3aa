"""OpenVINO as an engine: it compiles the same ONNX graph."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.engines.onnx_model import require_onnx
from halfstep.engines.onnx_plan import OnnxPlan, Session
from halfstep.errors import MissingExtraError
from halfstep.graph.quantized import Quantized
from halfstep.spec import Capabilities, int8, uint8


def require_openvino() -> Any:
    """The openvino package.

    Raises ``MissingExtraError`` where it is not installed.
    """
    try:
        import openvino  # noqa: PLC0415, TID251  (optional)
    except ImportError:
        raise MissingExtraError(
            "the engine openvino needs the packages onnx and openvino: install them with "
            "pip install 'halfstep[openvino]'"
        ) from None
    return openvino


@dataclass(frozen=True)
class OpenVinoEngine:
    """The quantized model compiled by OpenVINO for the CPU; what stays float is float32.

    opset: the version of ONNX's operators; by default the lowest that holds the formats.

    Raises ``MissingExtraError`` when a program is planned and the packages are not installed.

    >>> from halfstep.engines.openvino import OpenVinoEngine
    >>> OpenVinoEngine().name
    'openvino'
    """

    opset: int | None = None

    @property
    def name(self) -> str:
        """The name by which a user asks for it."""
        return "openvino"

    @property
    def capabilities(self) -> Capabilities:
        """What it runs in integers."""
        return Capabilities(
            engine=self.name,
            integer_ops=frozenset(
                {
                    *("linear", "conv", "conv_transpose", "matmul", "add", "mul", "cat", "move"),
                    *("max_pool", "avg_pool", "adaptive_avg_pool", "clamp"),
                }
            ),
            dtypes=(uint8, int8),
            fuses_residual=False,
            per_row=False,
        )

    def plan(self, quantized: Quantized, module: nn.Module) -> OnnxPlan:
        """The program made ready to run here."""
        require_onnx()
        require_openvino()
        return OnnxPlan(quantized, self.opset, _start)


def _start(model: bytes, threads: int) -> Session:
    openvino = require_openvino()
    core = openvino.Core()
    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    outputs = list(compiled.outputs)
    local = threading.local()  # a request holds one set of outputs, so each thread has its own

    def run(tensors: Sequence[Tensor]) -> list[Tensor]:
        if not hasattr(local, "request"):
            local.request = compiled.create_infer_request()
        arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
        found = local.request.infer(arrays, share_inputs=True, share_outputs=False)
        return [torch.from_numpy(found[output]) for output in outputs]

    return run
