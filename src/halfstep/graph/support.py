"""What of a calibrated program one engine runs in integers."""

from halfstep.graph.edges import Edge
from halfstep.graph.flow import Flow
from halfstep.graph.kinds import kind_of, operands
from halfstep.graph.program import Step
from halfstep.graph.quantized import Execution, Quantized
from halfstep.spec import Capabilities


class Support:
    """Answers for each step and value of a calibrated program.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.quantized import Quantized
    >>> from halfstep.graph.support import Support
    >>> from halfstep.spec import Capabilities
    >>> program = export(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
    >>> some = Capabilities(engine="some", integer_ops=frozenset(["linear"]), dtypes=())
    >>> Support(Quantized(program), some).is_integer(program.steps[0])
    False
    """

    def __init__(self, quantized: Quantized, capabilities: Capabilities) -> None:
        self.quantized, self.capabilities = quantized, capabilities
        self.flow = Flow(quantized.program)

    def edge(self, name: str) -> Edge | None:
        """The format of a value, if it is one that the engine takes."""
        edge = self.quantized.edges.get(name)
        return edge if edge is not None and self.capabilities.takes(edge.spec.dtype) else None

    def is_integer(self, step: Step) -> bool:
        """Whether a step runs on codes."""
        decision, kind = self.quantized.decisions.get(step.name), kind_of(step)
        if decision is None or kind is None or decision.execution is not Execution.INTEGER:
            return False
        given = (v.name for v in operands(step, kind) if v.name not in self.flow.static)
        return kind.name in self.capabilities.integer_ops and all(map(self.edge, given))

    def out(self, name: str) -> Edge | None:
        """The format in which a value is made: none where no step takes it as codes."""
        edge = self.edge(name)
        return edge if any(self.takes(r, name) for r in self.flow.readers[name]) else None

    def takes(self, reader: Step, name: str) -> bool:
        """Whether a step takes a value as codes."""
        kind = kind_of(reader)
        if kind is None or not self.is_integer(reader):
            return False
        return any(value.name == name for value in operands(reader, kind))
