"""Engines by name."""

from dataclasses import dataclass

from torch import nn

from halfstep.errors import ArgumentError
from halfstep.graph.convert import convert
from halfstep.graph.engine import Engine, Runnable
from halfstep.graph.frozen import Frozen
from halfstep.graph.quantized import Quantized
from halfstep.spec import Capabilities, int8, uint8

_OPS = (
    *("linear", "conv", "conv_transpose", "matmul", "add", "sub", "mul", "cat", "mean", "move"),
    *("avg_pool", "adaptive_avg_pool", "max_pool", "adaptive_max_pool", "table", "clamp"),
    *("linear_rows", "conv_rows", "conv_transpose_rows", "lstm", "gru", "rnn"),
    *("embedding", "embedding_bag"),
)


@dataclass(frozen=True)
class ReferenceEngine:
    """Every integer step by its formula."""

    name: str = "reference"

    @property
    def capabilities(self) -> Capabilities:
        """All of them."""
        return Capabilities(engine=self.name, integer_ops=frozenset(_OPS), dtypes=(uint8, int8))

    def plan(self, quantized: Quantized, module: nn.Module) -> Runnable:
        """The converted program."""
        return Frozen(convert(quantized, self.capabilities))


def engine_named(engine: str | Engine) -> Engine:
    """The engine of that name. Raises ``ArgumentError`` where there is none."""
    if not isinstance(engine, str):
        return engine
    if engine not in ("torch", "reference"):
        raise ArgumentError(f"engine={engine!r}: allowed are 'torch' and 'reference'")
    return ReferenceEngine()
