"""Where the error of one operator comes from: its sources are switched on one after the other.

An operator y = F(w, x) in float becomes Q(F(Q(w), Q(x))) in integers. Each source changes y by a
tensor of its own, and all of them add up to the error, since each starts where the last one ended:

    y0 = F(w, x)    y1 = F(clip(w), x)    y2 = F(Q(w), x)    y3 = F(Q(w), clip(x))
    y4 = F(Q(w), Q(x))    y5 = clip(y4)    y6 = Q(y4)    error y6 - y0 = sum of d[i] = y[i] - y[i-1]

clip(x) is x where its code needs no clamping, and Q(x) elsewhere.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.graph.integer_codes import operand
from halfstep.graph.kinds import Family
from halfstep.graph.lockstep import Moment
from halfstep.graph.operators import resolve, torch_value
from halfstep.graph.program import TorchName
from halfstep.graph.quantized import Execution
from halfstep.graph.trees import Value, mapped
from halfstep.numerics import ops, rows
from halfstep.report.errors import noise_between
from halfstep.report.layout import Layout, Operator
from halfstep.report.records import SOURCES, Split
from halfstep.report.weights import Weights

_W_CLIP, _W_ROUND, _X_CLIP, _X_ROUND, _Y_CLIP, _Y_ROUND = SOURCES


class Splitter:
    """Splits the errors of a program's operators, and adds them up over batches."""

    def __init__(self, layout: Layout, weights: Weights) -> None:
        self._layout, self._weights = layout, weights
        self._sums: dict[str, dict[str, float]] = {}

    def add(self, operator: Operator, moment: Moment) -> None:
        """Take in one run of an operator, from the float values at hand."""
        sums = self._sums.setdefault(operator.name, dict.fromkeys((*SOURCES, "total"), 0.0))
        start = last = self._start(operator, moment)
        for source, y in self._stages(operator, moment):
            sums[source] += noise_between(last, y)
            last = y
        sums["total"] += noise_between(start, last)

    def of(self, name: str) -> Split | None:
        """The split of the operator that brings a value; None where it has not run."""
        if name not in self._sums:
            return None
        sources = dict(self._sums[name])
        total = sources.pop("total")
        return Split(sources, total - sum(sources.values()), total)

    def _start(self, operator: Operator, moment: Moment) -> Any:
        """The float32 result, which the model has where it computes in float32."""
        expected = moment.expected
        if isinstance(expected, Tensor) and expected.dtype == torch.float32:
            return expected
        return self._run(operator, self._given(operator, moment, "float"))

    def _stages(self, operator: Operator, moment: Moment) -> Iterator[tuple[str, Any]]:
        """The sources that are there, each with the result once it is switched on."""
        if self._weights.are_clipped(operator):
            yield _W_CLIP, self._run(operator, self._given(operator, moment, "clipped"))
        given = self._given(operator, moment, "integers")
        if self._weights.are_integers(operator):
            yield _W_ROUND, self._run(operator, given)
        if operator.execution is Execution.WEIGHT_ONLY:
            return
        if operator.kind is not None and operator.kind.family is Family.RECURRENT:
            yield _X_ROUND, moment.local  # rows of the state too, in every step
            return
        clipped, quantized = self._inputs(operator, given)
        if clipped:
            yield _X_CLIP, self._run(operator, {**given, **clipped})
        y = self._run(operator, {**given, **quantized})
        yield _X_ROUND, y
        edge = self._layout.edge(operator.name)
        if operator.as_codes and edge is not None:
            yield from self._output(y, edge)

    def _inputs(
        self, operator: Operator, given: Mapping[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The inputs that clipping changes, with it alone, and all of them quantized."""
        clipped: dict[str, Tensor] = {}
        quantized: dict[str, Tensor] = {}
        for name in operator.takes:
            edge, rows_spec = self._layout.edge(name), operator.decision.input
            if operator.execution is Execution.DYNAMIC and rows_spec is not None:
                codes = rows.quantize_rows(given[name], rows_spec)
                quantized[name] = ops.dequantize(*codes, torch.float32)
            elif edge is not None:
                quantized[name], inside = _fake_quantized(given[name], edge)
                if not inside.all():
                    clipped[name] = torch.where(inside, given[name], quantized[name])
        return clipped, quantized

    @staticmethod
    def _output(y: Tensor, edge: Edge) -> Iterator[tuple[str, Tensor]]:
        quantized, inside = _fake_quantized(y, edge)
        if not inside.all():
            yield _Y_CLIP, torch.where(inside, y, quantized)
        yield _Y_ROUND, quantized

    def _given(self, operator: Operator, moment: Moment, stage: str) -> dict[str, Any]:
        """What the operator reads, in float32, with its weights at one stage."""
        moving = [name for name in operator.reads if name not in self._layout.flow.static]
        found = {name: _float32(moment.values[name]) for name in moving}
        static = [name for name in operator.reads if name in self._layout.flow.static]
        return found | {name: self._weights.value(name, stage) for name in static}

    def _run(self, operator: Operator, given: Mapping[str, Any]) -> Any:
        """The operator's float steps on these values."""
        values = dict(given)

        def leaf(argument: Any) -> Any:
            if isinstance(argument, Value):
                return values[argument.name]
            return torch_value(argument) if isinstance(argument, TorchName) else argument

        for step in operator.steps:
            options = {name: mapped(value, leaf) for name, value in step.kwargs}
            values[step.name] = resolve(step.op)(*mapped(step.args, leaf), **options)
        result = values[operator.name]
        is_bag = operator.kind is not None and operator.kind.name == "embedding_bag"
        return result[0] if is_bag else result


def _fake_quantized(x: Tensor, edge: Edge) -> tuple[Tensor, Tensor]:
    quantized, inside = ops.fake_quantize_with_mask(*operand(x, edge), edge.qmin, edge.qmax)
    return quantized, inside


def _float32(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.float32)
    return value
