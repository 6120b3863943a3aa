"""What graph asks of an engine. The engines themselves live in a room above."""

from typing import Any, Protocol

from torch import nn

from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Hook
from halfstep.graph.trees import Branch
from halfstep.spec import Capabilities


class Runnable(Protocol):
    """A program made ready to run."""

    @property
    def program(self) -> Program:
        """The program, for its inputs and its mode."""
        ...

    def takes(self, given: Branch) -> bool:
        """Whether it is for arguments of this kind."""
        ...

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the program returns for these arguments, over the parameters of ``module``."""
        ...


class Engine(Protocol):
    """What runs a calibrated program. Engines are plain data: they are copied and pickled."""

    @property
    def name(self) -> str:
        """The name by which a user asks for it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it runs in integers."""
        ...

    def plan(self, quantized: Quantized, module: nn.Module) -> Runnable:
        """The program made ready to run here."""
        ...
