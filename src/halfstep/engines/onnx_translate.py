"""From a calibrated program to an ONNX graph."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.engines.onnx_graph import Known, Number, Ref, Shape
from halfstep.engines.onnx_names import input_dimensions, output_names
from halfstep.engines.onnx_ops import translation
from halfstep.engines.onnx_ops.elementwise import clamp
from halfstep.engines.onnx_ops.table import Translation, refuse
from halfstep.engines.onnx_placement import Placed
from halfstep.engines.onnx_qdq import LOWEST_OPSET, QdqGraph, needed_opset
from halfstep.errors import ArgumentError
from halfstep.graph.kinds import clamp_bounds
from halfstep.graph.operators import GRAD_MODE, is_removable, resolve, torch_value
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.run import find
from halfstep.graph.trees import Value, mapped
from halfstep.tensor import QTensor


@dataclass(frozen=True)
class Translated:
    """A graph with its inputs and outputs: names, dtypes and sizes, by name where they vary.

    numbers: the outputs that are Python numbers to the model.
    """

    graph: QdqGraph
    inputs: tuple[tuple[str, torch.dtype, tuple[int | str, ...]], ...]
    outputs: tuple[tuple[str, torch.dtype, Shape], ...]
    numbers: frozenset[str] = frozenset()


def translate(quantized: Quantized, module: nn.Module, opset: int | None = None) -> Translated:
    """The graph of a calibrated program over the parameters of ``module``.

    opset: the version of ONNX's operators; by default the lowest that holds the formats, 13, or 21
        for 16 and 4 bits and for groups.

    Raises ``ArgumentError`` for an operator that has no form in ONNX, and names its layer.

    >>> import torch
    >>> from halfstep.engines.onnx_translate import translate
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.quantized import Quantized
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    >>> found = translate(Quantized(export(model, (torch.ones(3, 2),))), model)
    >>> [node.op for node in found.graph.nodes], found.graph.opset
    (['Gemm', 'Relu', 'Identity'], 13)
    """
    program = quantized.program
    tensors = {name: find(module, path) for name, path in program.parameters.items()}
    tensors |= program.constants
    if opset is not None and opset < LOWEST_OPSET:
        raise ArgumentError(
            f"opset={opset}: a scale for each channel is in ONNX from opset {LOWEST_OPSET} on. "
            "Leave opset out to take the lowest that holds the formats"
        )
    _check_precision(tensors)
    chosen = lowest_opset(quantized, tensors) if opset is None else opset
    writer = _Writer(quantized, QdqGraph(chosen), tensors)
    for step in program.steps:
        writer.write(step)
    return writer.finished()


def _check_precision(tensors: Mapping[str, Tensor]) -> None:
    """Raise ``ArgumentError`` for integers that stand for half or double precision."""
    for name, tensor in tensors.items():
        if isinstance(tensor, QTensor) and tensor.dtype != torch.float32:
            raise ArgumentError(
                f"{name} stands for {str(tensor.dtype).removeprefix('torch.')}, and what quantizes "
                "in ONNX takes float32: quantize model.float()"
            )


def lowest_opset(quantized: Quantized, tensors: Mapping[str, Tensor]) -> int:
    """The lowest opset that holds all formats."""
    weights = [tensor for tensor in tensors.values() if isinstance(tensor, QTensor)]
    found = [*map(needed_opset, quantized.edges.values()), *map(needed_opset, weights)]
    return max(found, default=LOWEST_OPSET)


class _Writer:
    """The values that are written so far, by their name in the program."""

    def __init__(
        self, quantized: Quantized, graph: QdqGraph, tensors: Mapping[str, Tensor]
    ) -> None:
        self.placed = Placed(quantized)
        self.program: Program = quantized.program
        self.graph = graph
        self.dimensions = input_dimensions(self.program)
        self.outputs = output_names(self.program)
        self.values: dict[str, Any] = {name: known(name, t) for name, t in tensors.items()}
        for given in self.program.inputs:
            name = graph.fresh(given.value.name)
            sizes = self.dimensions[name]
            shape = tuple(n if isinstance(n, int) else None for n in sizes)
            self.values[name] = Ref(name, torch_value(TorchName("dtype", given.dtype)), shape)
        self.numbers: set[str] = set()
        self.names = [graph.fresh(name) for name, _ in self.outputs]

    def write(self, step: Step) -> None:
        """Write one step."""
        if step.op == GRAD_MODE:
            self.values[step.name] = True
            return
        self.graph.scope, self.graph.source = step.name, step.source
        self.graph.decision = self.placed.decisions.get(step.name, Decision(Execution.FLOAT))
        if self._is_known(step):
            self.values[step.name] = self._computed(step)
        elif self.placed.is_integer_clamp(step):
            self.values[step.name] = self._clamped(step)
        else:
            self.values[step.name] = self._translated(step)

    def _translated(self, step: Step) -> Any:
        args = mapped(step.args, lambda leaf: self._argument(leaf, step))
        kwargs = {
            name: mapped(v, lambda leaf: self._argument(leaf, step)) for name, v in step.kwargs
        }
        if step.op == "operator.getitem":
            return args[0][args[1]]
        function = translation(step.op)
        if function is None or not _takes(function, self.graph, args, kwargs):
            raise refuse(
                self.graph,
                f"{step.op}{'' if function is None else ' with these arguments'}",
                "replace it in the model, or export the parts around it",
            )
        return function(self.graph, *args, **kwargs)

    def _argument(self, leaf: Any, step: Step | None) -> Any:
        """A leaf of a step's arguments; of a value with an edge, its codes as floats."""
        if isinstance(leaf, TorchName):
            return torch_value(leaf)
        if not isinstance(leaf, Value):
            return leaf
        found = self.values[leaf.name]
        if isinstance(found, Ref) and self.placed.reads_codes(leaf.name, step):
            return self.graph.quantized(found, self.placed.edges[leaf.name])
        return found

    def _clamped(self, step: Step) -> Ref:
        """A clamp whose result is kept as codes: what saturates anyway is no node.

        Codes that are cut off further are so after they were rounded, since the operator before
        then ends in a QuantizeLinear, as runtimes ask for.
        """
        edge = self.placed.edges[step.name]
        x: Ref = self._argument(step.args[0], step)
        low, high = clamp_bounds(step)
        lowest = edge.qmin if low is None else edge.code_of(low)
        highest = edge.qmax if high is None else edge.code_of(high)
        if x.name not in self.graph.edges:
            x = self.graph.quantized(x, edge)
        if (lowest, highest) == (edge.qmin, edge.qmax):
            return self.graph.quantized(x, edge)
        return clamp(self.graph, x, low, high)

    def _is_known(self, step: Step) -> bool:
        """Whether a step depends on parameters and constants alone."""
        return is_removable(step.op) and all(
            _is_plain(self.values[leaf.name]) for leaf in step.reads()
        )

    def _computed(self, step: Step) -> Any:
        """What such a step brings."""
        args = mapped(step.args, self._plain)
        kwargs = {name: mapped(value, self._plain) for name, value in step.kwargs}
        with torch.no_grad():
            found = resolve(step.op)(*args, **kwargs)
        return _named(step.name, found)

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, TorchName):
            return torch_value(leaf)
        return _unnamed(self.values[leaf.name]) if isinstance(leaf, Value) else leaf

    def finished(self) -> Translated:
        """The graph with its outputs, without what nobody reads."""
        graph = self.graph
        graph.scope = graph.source = ""
        found = [self._output(*pair) for pair in zip(self.names, self.outputs, strict=True)]
        graph.remove_unread([name for name, *_ in found])
        inputs = tuple(
            (name, self.values[name].dtype, sizes) for name, sizes in self.dimensions.items()
        )
        return Translated(graph, inputs, tuple(found), frozenset(self.numbers))

    def _output(self, name: str, output: tuple[str, Value]) -> tuple[str, torch.dtype, Shape]:
        """An output under its own name."""
        found = self._argument(output[1], None)
        if isinstance(found, Number) or not isinstance(found, Ref):
            self.numbers.add(name)
        if not isinstance(found, Ref):
            found = self.graph.constant(torch.tensor(found))
        if isinstance(found, Number):
            found = self.graph.op("Squeeze", found, [0], shape=())
        self.graph.name_output(found, name)
        return name, found.dtype, found.shape


def known(name: str, tensor: Tensor) -> Known:
    """A parameter or constant."""
    return Known(name, tensor.dtype, tuple(tensor.shape), tensor)


def _is_plain(value: Any) -> bool:
    """Whether it is known before the graph runs."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, Known) or not isinstance(value, Ref)


def _unnamed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unnamed, value))
    return value.tensor if isinstance(value, Known) else value


def _named(name: str, found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple(_named(f"{name}.{place}", each) for place, each in enumerate(found))
    return known(name, found) if isinstance(found, Tensor) else found


def _takes(function: Translation, graph: QdqGraph, args: Any, kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(graph, *args, **kwargs)
    except TypeError:
        return False
    return True
