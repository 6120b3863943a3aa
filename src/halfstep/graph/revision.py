"""What an algorithm makes of a program: another one, and other values for its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from halfstep.graph.program import Program


@dataclass(frozen=True, eq=False)
class Revision:
    """A program that was changed.

    weights: what parameters of the program have to be now, by the name of their value.
    done: what was done to the layer of a step, by its name.
    refused: why nothing was done where something might have been, by the name of the step.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.revision import Revision
    >>> Revision(export(torch.nn.ReLU(), (torch.ones(2, 3),))).done
    {}
    """

    program: Program
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    done: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
