"""Which values of a calibrated program are codes in the file: where Q and DQ stand."""

from halfstep.graph.kinds import Family, kind_of
from halfstep.graph.program import Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.regions import find_regions
from halfstep.graph.support import Support
from halfstep.spec import Capabilities

# What the file says in integers; whether a runtime has a kernel for it is the runtime's matter.
OPERATORS = frozenset(
    {
        *("linear", "conv", "conv_transpose", "matmul", "add", "sub", "mul", "cat", "move"),
        *("avg_pool", "adaptive_avg_pool", "max_pool", "mean", "clamp", "table"),
        *("adaptive_max_pool", "embedding", "embedding_bag", "linear_rows"),
    }
)


class Placed:
    """The answers for one program.

    A value exists as codes where it has an edge and a step takes it in integers. A clamp behind
    an operator that only it reads is part of that operator: nothing is rounded between them. A sum
    is not: runtimes want Q and DQ before it, too.
    """

    def __init__(self, quantized: Quantized) -> None:
        formats = {edge.spec.dtype: None for edge in quantized.edges.values()}
        self._support = Support(
            quantized,
            Capabilities(
                engine="onnx",
                integer_ops=OPERATORS,
                dtypes=tuple(formats),
                fuses_residual=False,
            ),
        )
        self.edges = quantized.edges
        self.decisions = quantized.decisions
        self._regions = find_regions(self._support)
        self._codes = {name for name in self.edges if self._is_codes(name)}

    def _is_codes(self, name: str) -> bool:
        region = self._regions.get(name)
        is_inside = region is not None and region.name != name
        return not is_inside and self._support.out(name) is not None

    def reads_codes(self, name: str, step: Step | None) -> bool:
        """Whether a step, or the output for None, reads a value rounded to its edge."""
        if name not in self._codes:
            return False
        if name in self._regions:
            return True
        return step is not None and self._support.takes(step, name)

    def is_integer_clamp(self, step: Step) -> bool:
        """Whether a step is a clamp in integers whose result is kept as codes."""
        kind = kind_of(step)
        is_clamp = kind is not None and kind.family is Family.CLAMP
        return is_clamp and step.name in self._codes and step.name in self._regions
