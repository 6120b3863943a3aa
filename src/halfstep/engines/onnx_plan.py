"""Running a program in a runtime that takes ONNX: what all of them share."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from halfstep.engines.onnx_model import model_proto
from halfstep.engines.onnx_names import output_names
from halfstep.engines.onnx_translate import Translated, translate
from halfstep.graph.frozen import Watch
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Hook, Plan
from halfstep.graph.trees import Branch, join, mapped

# From input tensors, in the order of the program, to output tensors.
Session: TypeAlias = Callable[[Sequence[Tensor]], Sequence[Tensor]]
# From the bytes of a model and a number of threads.
Start: TypeAlias = Callable[[bytes, int], Session]


class OnnxPlan:
    """A calibrated program in another runtime, which is given the model when it first runs.

    It is given it anew when a parameter is replaced or written to, or when torch is given another
    number of threads.
    """

    def __init__(self, quantized: Quantized, opset: int | None, start: Start) -> None:
        self.program = quantized.program
        self._quantized, self._opset, self._start = quantized, opset, start
        self._plan = Plan(quantized.program)
        self._steps = {step.name: step for step in quantized.program.steps}
        self._outputs = [value for _, value in output_names(quantized.program)]
        self._lock = threading.Lock()
        self._made: tuple[nn.Module, int, Watch, Session] | None = None

    def takes(self, given: Branch) -> bool:
        """Whether the program is for arguments of this kind."""
        return self._plan.takes(given)

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the program returns for these arguments, over the parameters of ``module``.

        ``hook`` sees the steps whose values are returned; nothing else comes back from a runtime.
        """
        tensors = self._plan.checked(given)
        found = self._session(module)(tensors)
        outputs = dict(zip(self._outputs, found, strict=True))
        if hook is not None:
            for value, tensor in outputs.items():
                if value.name in self._steps:
                    outputs[value] = hook(self._steps[value.name], tensor)
        return join(mapped(self.program.outputs, lambda leaf: outputs.get(leaf, leaf)))

    def _session(self, module: nn.Module) -> Session:
        threads, made = torch.get_num_threads(), self._made
        if made is None or made[:2] != (module, threads) or made[2].has_changed():
            with self._lock:
                watch = Watch(module, self.program.parameters.values())
                translated = translate(self._quantized, module, self._opset)
                model = model_proto(translated)
                session = self._start(model.SerializeToString(), threads)
                session = _with_numbers(session, translated)
                made = self._made = (module, threads, watch, session)
        return made[3]


def _with_numbers(session: Session, translated: Translated) -> Session:
    """The session, which returns numbers where the model does."""
    if not translated.numbers:
        return session
    names = [name for name, *_ in translated.outputs]

    def run(tensors: Sequence[Tensor]) -> list[Any]:
        found = zip(names, session(tensors), strict=True)
        return [t.item() if name in translated.numbers else t for name, t in found]

    return run
