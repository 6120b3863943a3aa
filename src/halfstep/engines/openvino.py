"""OpenVINO as an engine: it compiles the same ONNX graph."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.engines.onnx_model import require_onnx
from halfstep.engines.onnx_plan import OnnxPlan
from halfstep.errors import MissingExtraError
from halfstep.graph.kinds import kind_of
from halfstep.graph.program import Step
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.spec import Capabilities, PerGroup, PerToken, int8, uint8

# Values of a row that share a scale in a dynamic layer: 64 are slower, 256 are coarser than a row
# whose zero point is free.
GROUP = 128


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

    Dynamic linear layers have a scale for every 128 values of a row, where the torch engine has one
    for the row.

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
        grouped = in_groups(quantized)
        group = 0 if grouped is quantized else GROUP
        return OnnxPlan(grouped, self.opset, partial(_Session, group=group))


def in_groups(quantized: Quantized) -> Quantized:
    """Dynamic linear layers as OpenVINO has them: a weight kept as integers, and a property.

    It then finds a scale for every ``GROUP`` values of a row, in int8; a group is part of a row, so
    that rows do not meet. The property holds for a whole program: one that has linear layers whose
    inputs are to stay in float as well is returned as it is, and its rows are written as formulas.
    """
    linear = {step.name for step in quantized.program.steps if _is_linear(step)}
    wanted = {name: quantized.decisions[name] for name in linear & quantized.decisions.keys()}
    if any(one.execution is Execution.WEIGHT_ONLY for one in wanted.values()):
        return quantized
    made = {
        name: Decision(Execution.WEIGHT_ONLY, one.reason, one.weight)
        for name, one in wanted.items()
        if one.execution is Execution.DYNAMIC and _has_whole_rows(one)
    }
    if not made or len(made) < sum(d.execution is Execution.DYNAMIC for d in wanted.values()):
        return quantized
    return replace(quantized, decisions={**quantized.decisions, **made})


def _is_linear(step: Step) -> bool:
    kind = kind_of(step)
    return kind is not None and kind.name in ("linear", "matmul")


def _has_whole_rows(decision: Decision) -> bool:
    """Whether both formats are such that OpenVINO's own serve: 8 bits, no groups of weights."""
    weight, rows = decision.weight, decision.input
    if weight is None or rows is None or isinstance(weight.granularity, PerGroup):
        return False
    return weight.dtype.bits == rows.dtype.bits == 8 and rows.granularity == PerToken()


class _Session:
    """A model compiled for the sizes that it is first called with, and once more for all others.

    With fixed sizes OpenVINO plans its memory beforehand, which is up to a quarter faster.
    """

    def __init__(self, model: bytes, threads: int, *, group: int) -> None:
        self._openvino = require_openvino()
        self._model = model
        self._options = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            # By default it would quantize the inputs of layers that only store integers.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": group,
        }
        self._lock = threading.Lock()
        self._sizes: tuple[torch.Size, ...] | None = None
        self._compiled: dict[bool, Any] = {}
        self._local = threading.local()  # a request holds one set of outputs: one a thread

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for these inputs."""
        sizes = tuple(tensor.shape for tensor in tensors)
        with self._lock:
            self._sizes = self._sizes or sizes
        request = self._request(fixed=sizes == self._sizes)
        arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
        found = request.infer(arrays, share_inputs=True, share_outputs=False)
        return [torch.from_numpy(found[output]) for output in request.model_outputs]

    def _request(self, *, fixed: bool) -> Any:
        requests = vars(self._local).setdefault("requests", {})
        if fixed not in requests:
            with self._lock:
                if fixed not in self._compiled:
                    self._compiled[fixed] = self._compile(fixed=fixed)
            requests[fixed] = self._compiled[fixed].create_infer_request()
        return requests[fixed]

    def _compile(self, *, fixed: bool) -> Any:
        core = self._openvino.Core()
        model = core.read_model(self._model)
        if fixed and self._sizes is not None:
            model.reshape(dict(zip(model.inputs, map(list, self._sizes), strict=True)))
        return core.compile_model(model, "CPU", self._options)
