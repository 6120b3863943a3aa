"""ONNX Runtime as an engine."""

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

# Errors only: it warns of every node that it has moved.
_LOG_ERRORS = 3
# Where weights alone are integers, it would round the activations to 8 bits by itself.
_FLOAT_ACTIVATIONS = ("session.qdq_matmulnbits_accuracy_level", "1")


def require_onnxruntime() -> Any:
    """The onnxruntime package.

    Raises ``MissingExtraError`` where it is not installed.
    """
    try:
        import onnxruntime  # noqa: PLC0415, TID251  (optional)
    except ImportError:
        raise MissingExtraError(
            "the engine onnxruntime needs the packages onnx and onnxruntime: install them with "
            "pip install 'halfstep[onnx]'"
        ) from None
    return onnxruntime


@dataclass(frozen=True)
class OnnxRuntimeEngine:
    """The quantized model in ONNX Runtime, on the CPU.

    opset: the version of ONNX's operators; by default the lowest that holds the formats.

    Raises ``MissingExtraError`` when a program is planned and the packages are not installed.

    >>> from halfstep.engines.onnx_runtime import OnnxRuntimeEngine
    >>> engine = OnnxRuntimeEngine()
    >>> engine.name, "conv" in engine.capabilities.integer_ops
    ('onnxruntime', True)
    """

    opset: int | None = None

    @property
    def name(self) -> str:
        """The name by which a user asks for it."""
        return "onnxruntime"

    @property
    def capabilities(self) -> Capabilities:
        """What it runs in integers."""
        return Capabilities(
            engine=self.name,
            integer_ops=frozenset(
                {
                    *("linear", "conv", "matmul", "add", "mul", "cat", "move", "max_pool"),
                    *("avg_pool", "adaptive_avg_pool", "clamp", "linear_rows", "embedding"),
                }
            ),
            dtypes=(uint8, int8),
            narrower=False,
            fuses_residual=False,
        )

    def plan(self, quantized: Quantized, module: nn.Module) -> OnnxPlan:
        """The program made ready to run here."""
        require_onnx()
        require_onnxruntime()
        return OnnxPlan(quantized, self.opset, start)


def start(model: bytes, threads: int) -> Session:
    """What runs the bytes of a model.

    Raises ``MissingExtraError`` where onnxruntime is not installed.
    """
    runtime = require_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _LOG_ERRORS
    options.add_session_config_entry(*_FLOAT_ACTIVATIONS)
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    wanted = [given.name for given in session.get_outputs()]

    def run(tensors: Sequence[Tensor]) -> list[Tensor]:
        arrays = (tensor.detach().contiguous().numpy() for tensor in tensors)
        found = session.run(wanted, dict(zip(names, arrays, strict=True)))
        return [torch.from_numpy(array) for array in found]

    return run
