"""Where a quantized model comes from: its float form, traced, and what was decided of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from halfstep.flows.order import Order
from halfstep.flows.parts import Part
from halfstep.graph.capture import Region
from halfstep.graph.trees import Branch


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A model on its way.

    original: the float model, in eval mode.
    work: a copy of it, in which folded weights stand; it shares all parameters that are as they
        were.
    regions: what was captured of it.
    parts: the programs, and what is decided of them.
    notes: what is to be said of remedies.
    inputs: what the programs of each path were given while they were calibrated, for remedies that
        need it.
    by_layer: whether they are layers, each with a program for every way in which it may be called.
    """

    order: Order
    original: nn.Module
    work: nn.Module
    regions: Sequence[Region]
    parts: Sequence[Part]
    by_layer: bool = False
    notes: Sequence[str] = ()
    inputs: Mapping[str, Sequence[Sequence[Branch]]] = field(default_factory=dict)
