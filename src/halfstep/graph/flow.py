"""Who makes a value and who reads it."""

from collections import defaultdict
from functools import cached_property

from halfstep.graph.operators import is_removable
from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value, leaves

# Steps through which a weight is cut along its first axis, so that its channels stay whole.
_CUTS = ("chunk", "split", "split_with_sizes", "slice", "narrow", "getitem")
_TURNS = ("aten.t.default", "aten.transpose.int", "aten.numpy_T.default", "aten.mT.default")
_AXIS_LAST = ("chunk", "split", "split_with_sizes")


class Flow:
    """The values of a program: their makers, their readers, and which never change.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.flow import Flow
    >>> flow = Flow(export(torch.nn.Linear(2, 1), (torch.ones(3, 2),)))
    >>> flow.maker["linear"].op, [step.name for step in flow.readers["weight"]]
    ('aten.linear.default', ['linear'])
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.maker: dict[str, Step] = {step.name: step for step in program.steps}
        self.readers: dict[str, list[Step]] = defaultdict(list)
        for step in program.steps:
            for name in dict.fromkeys(value.name for value in step.reads()):
                self.readers[name].append(step)
        self.returned = {v.name for v in leaves(program.outputs) if isinstance(v, Value)}

    def only_reader(self, name: str) -> Step | None:
        """The one step that reads a value, where nothing else does."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.returned else None

    @cached_property
    def static(self) -> set[str]:
        """The values that depend on parameters and constants alone."""
        known = {*self.program.parameters, *self.program.constants}
        for step in self.program.steps:
            reads = [value.name for value in step.reads()]
            if reads and is_removable(step.op) and known.issuperset(reads):
                known.add(step.name)
        return known

    def weight_root(self, name: str) -> str | None:
        """The parameter or constant that a weight is, or is cut from along the first axis."""
        while (maker := self.maker.get(name)) is not None:
            operator, first = maker.op.split(".")[1], maker.args[0]
            if operator not in _CUTS or not isinstance(first, Value):
                return None
            axis = maker.args[-1] if operator in _AXIS_LAST else maker.args[1]
            if operator != "getitem" and axis != 0:
                return None
            name = first.name
        return name if name in self.program.parameters or name in self.program.constants else None

    def turned(self, name: str) -> str | None:
        """The parameter or constant that a matrix is the transpose of."""
        maker = self.maker.get(name)
        if maker is None or maker.op not in _TURNS or not isinstance(maker.args[0], Value):
            return None
        root: str = maker.args[0].name
        return root if root in self.program.parameters or root in self.program.constants else None
