"""From a calibrated program to the integer steps that one engine runs."""

from typing import Any

from halfstep.graph.check import check
from halfstep.graph.forms import FORMS, Context, weight_of
from halfstep.graph.kinds import Family, Kind, kind_of
from halfstep.graph.liveness import without_unread
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.regions import Region, find_regions
from halfstep.graph.support import Support
from halfstep.graph.trees import Value
from halfstep.graph.writer import Writer
from halfstep.spec import Capabilities

# What has no form that returns floats.
_KEEP_CODES = (Family.MOVE, Family.CLAMP)
_FLOAT = Decision(Execution.FLOAT)


def convert(quantized: Quantized, capabilities: Capabilities) -> Program:
    """The program with integer steps ("int.conv", ...) for what the engine runs in integers.

    The codes of a value are called as it is, with "_q". A value is codes where a step takes it so;
    where one takes the float as well, it is dequantized for that one.

    >>> import torch
    >>> from halfstep.graph.convert import convert
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.quantized import Quantized
    >>> from halfstep.spec import Capabilities
    >>> program = export(torch.nn.ReLU(), (torch.ones(3, 2),))
    >>> none = Capabilities(engine="none", integer_ops=frozenset(), dtypes=())
    >>> str(convert(Quantized(program), none)) == str(program)
    True
    """
    support = Support(quantized, capabilities)
    work = _Conversion(Context(support, Writer(quantized)))
    for step in quantized.program.steps:
        work.step(step)
    program = without_unread(work.writer.finish())
    check(program)
    return program


class _Conversion:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.support, self.writer = context.support, context.writer
        self.regions = find_regions(context.support)
        self.bags: dict[str, Value] = {}
        self.recurrent: set[str] = set()

    def step(self, step: Step) -> None:
        """A step in the form that is decided for it."""
        region = self.regions.get(step.name)
        decision = self.support.quantized.decisions.get(step.name, _FLOAT)
        kind = kind_of(step)
        if region is not None:
            if region.name == step.name and not self.integer(region):
                self.writer.copy(step)
        elif kind is not None and decision.execution is Execution.DYNAMIC:
            self.by_rows(step, kind, decision)
        elif kind is not None and decision.weight is not None and kind.family is Family.LOOKUP:
            self.lookup(step, kind)
        elif step.op == "operator.getitem" and step.args[0].name in self.bags:
            self.writer.alias(step.name, self.bags[step.args[0].name])
        elif step.op == "operator.getitem" and step.args[0].name in self.recurrent:
            self.writer.put(step, step.name, step.op, step.args, None)
        else:
            self.writer.copy(step)

    def integer(self, region: Region) -> bool:
        """Write a region that runs on codes; False where it has no such form after all."""
        kind = kind_of(region.main)
        if kind is None:
            return False
        keeps = kind.family in _KEEP_CODES
        out = (self.support.edge if keeps else self.support.out)(region.name)
        found = FORMS[kind.name](self.context, region, out)
        if found is None:
            return False
        self.writer.put(region.main, region.name, *found, out)
        return True

    def by_rows(self, step: Step, kind: Kind, decision: Decision) -> None:
        """A step whose rows get their scales while the program runs."""
        spec = decision.input
        if spec is None or not self.support.capabilities.per_row:
            self.writer.copy(step)
        elif kind.family is Family.RECURRENT:
            given = (*map(self.operand, step.args), spec)
            self.recurrent.add(step.name)
            self.writer.put(step, step.name, f"int.{kind.name}", given, None)
        else:
            rows = self.writer.rows(step.args[0].name, spec)
            weight = weight_of(self.context, step)
            name, rest = (
                ("linear", (None,)) if kind.name == "matmul" else (kind.name, step.args[2:])
            )
            given = (rows, weight, *rest, None)
            self.writer.put(step, step.name, f"int.{name}_rows", given, None)

    def operand(self, value: Any) -> Any:
        """What a recurrent layer is given: weights as integers, the rest as floats."""
        if isinstance(value, tuple):
            return tuple(map(self.operand, value))
        if not isinstance(value, Value) or value.name in self.support.quantized.weights:
            return value
        return self.writer.floats(value.name)

    def lookup(self, step: Step, kind: Kind) -> None:
        """Rows of an integer table."""
        weight, indices, *rest = step.args
        given = self.writer.floats(indices.name)
        if kind.name == "embedding":
            self.writer.put(step, step.name, "int.embedding", (weight, given), None)
            return
        offsets, _, mode, _, samples, last, *padding = rest
        starts, factors = (None if v is None else self.operand(v) for v in (offsets, samples))
        skipped = padding[0] if padding and padding[0] is not None else -1
        args = (weight, given, starts, mode, factors, last, skipped)
        self.bags[step.name] = self.writer.add(f"{step.name}_bag", "int.embedding_bag", args, step)
