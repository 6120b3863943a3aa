"""A quantized program in float: the float program, with every rounding as steps of its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from halfstep.graph.kinds import kind_of, operands
from halfstep.graph.liveness import without_unread
from halfstep.graph.names import Names
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.quantized import Quantized
from halfstep.graph.regions import find_regions
from halfstep.graph.support import Support
from halfstep.graph.trees import Value, mapped
from halfstep.spec import Capabilities


def simulated(
    quantized: Quantized, weights: Mapping[str, Tensor], capabilities: Capabilities
) -> Program:
    """The float program in which each step that runs in integers is given rounded values.

    Every step has the name that it has in ``quantized``, so that the value of a layer can be seen
    before anything is added to it, cut off or rounded. Rows whose scales are found while the model
    runs are not rounded.

    weights: what the weights that are integers stand for, by name; they become constants.

    >>> import halfstep as hs, torch
    >>> from halfstep.graph.edges import Edge
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.quantized import Decision, Execution, Quantized
    >>> from halfstep.graph.simulated import simulated
    >>> from halfstep.spec import Capabilities
    >>> program = export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
    >>> edge = Edge(hs.QSpec(hs.uint8), 0.5, 0)
    >>> decisions = {"linear": Decision(Execution.INTEGER)}
    >>> quantized = Quantized(program, {"input": edge}, decisions)
    >>> some = Capabilities(
    ...     engine="some", integer_ops=frozenset(["linear"]), dtypes=(hs.uint8,)
    ... )
    >>> print(simulated(quantized, {}, some))
    program(input):
      weight = parameter weight
      bias = parameter bias
      input_codes = int.quantize(input, uint8(scale=0.5, zero_point=0))
      input_rounded = int.dequantize(input_codes, uint8(scale=0.5, zero_point=0))
      linear = aten.linear.default(input_rounded, weight, bias)
      return linear
    """
    work = _Simulation(quantized, Support(quantized, capabilities))
    for step in quantized.program.steps:
        work.take(step)
    program = quantized.program
    return without_unread(
        replace(
            program,
            steps=tuple(work.steps),
            parameters={n: p for n, p in program.parameters.items() if n not in weights},
            constants={**program.constants, **weights},
        )
    )


class _Simulation:
    """The steps so far, and the rounded form of each value that somebody takes so."""

    def __init__(self, quantized: Quantized, support: Support) -> None:
        self.support = support
        self.regions = find_regions(support)
        self.names = Names.of(quantized.program)
        self.steps: list[Step] = []
        self.rounded: dict[str, Value] = {}

    def take(self, step: Step) -> None:
        """Append a step, and before it what rounds its operands."""
        kind, region = kind_of(step), self.regions.get(step.name)
        if kind is None or region is None:
            self.steps.append(step)
            return
        outside = {
            value.name
            for value in operands(step, kind)
            if value.name not in self.support.flow.static
            and self.regions.get(value.name) is not region
        }
        args = mapped(step.args, lambda leaf: self.operand(leaf, outside))
        self.steps.append(replace(step, args=args))

    def operand(self, leaf: Any, outside: set[str]) -> Any:
        """An argument; rounded where it is taken as codes."""
        if not isinstance(leaf, Value) or leaf.name not in outside:
            return leaf
        if leaf.name not in self.rounded:
            edge = self.support.quantized.edges[leaf.name]
            codes, made = (self.names.fresh(f"{leaf.name}_{w}") for w in ("codes", "rounded"))
            self.steps.append(Step(codes, "int.quantize", (leaf, edge)))
            self.steps.append(Step(made, "int.dequantize", (Value(codes), edge)))
            self.rounded[leaf.name] = self.cast(Value(made), leaf.name)
        return self.rounded[leaf.name]

    def cast(self, rounded: Value, name: str) -> Value:
        """A rounded value, which is float32, in the dtype that the float model computes with."""
        dtype = self.support.quantized.dtypes.get(name)
        if dtype is None:
            return rounded
        made = self.names.fresh(f"{name}_cast")
        self.steps.append(Step(made, "aten.to.dtype", (rounded, TorchName("dtype", dtype))))
        return Value(made)
