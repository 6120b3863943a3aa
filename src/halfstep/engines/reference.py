"""The reference: every integer step by its formula, with exact sums. Slow, and on any machine."""

from dataclasses import dataclass

from torch import nn

from halfstep.graph.convert import convert
from halfstep.graph.frozen import Frozen
from halfstep.graph.quantized import Quantized
from halfstep.spec import Capabilities, QDType

# What has an integer form at all.
KINDS = frozenset(
    {
        *("linear", "conv", "conv_transpose", "matmul", "add", "sub", "mul", "cat", "table"),
        *("avg_pool", "adaptive_avg_pool", "mean", "max_pool", "adaptive_max_pool", "clamp"),
        *("move", "linear_rows", "conv_rows", "conv_transpose_rows", "lstm", "gru", "rnn"),
        *("embedding", "embedding_bag"),
    }
)


def formats(*names: str) -> tuple[QDType, ...]:
    """Formats by their names."""
    return tuple(map(QDType.parse, names))


_CAPABILITIES = Capabilities(
    engine="reference", integer_ops=KINDS, dtypes=formats("uint8", "int8", "uint16", "int16")
)


@dataclass(frozen=True)
class ReferenceEngine:
    """The formulas of docs/numerics.md, evaluated: what every other engine is compared with.

    >>> from halfstep.engines.reference import ReferenceEngine
    >>> ReferenceEngine().name, "conv" in ReferenceEngine().capabilities.integer_ops
    ('reference', True)
    """

    name: str = "reference"
    capabilities: Capabilities = _CAPABILITIES

    def plan(self, quantized: Quantized, module: nn.Module) -> Frozen:
        """The converted program, every step run by its operator."""
        return Frozen(convert(quantized, self.capabilities))
