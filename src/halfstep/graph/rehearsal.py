"""A program run over several batches at once, step by step, so that a step is seen on all of them.

What is decided of a layer can so depend on all data, and reach the layers behind it, in one pass.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from halfstep.graph.program import Program, Step
from halfstep.graph.run import Plan
from halfstep.graph.trees import Branch

# Sees a step and what it brings for each batch, and returns what is used in the place of that.
See: TypeAlias = Callable[[Step, list[Any]], list[Any]]


def rehearse(program: Program, module: nn.Module, batches: Sequence[Branch], see: See) -> None:
    """Run a program over all batches, one step after the other.

    The values of all batches are held at once, as long as a step needs them: see ``live_bytes``.

    >>> import inspect, torch
    >>> from halfstep.graph.export import arguments, export
    >>> from halfstep.graph.rehearsal import rehearse
    >>> model, x = torch.nn.ReLU(), torch.ones(2, 3)
    >>> given = arguments(inspect.signature(model.forward), (x,), {})
    >>> rehearse(export(model, (x,)), model, [given, given], lambda step, y: print(len(y)) or y)
    2
    """
    plan = Plan(program)
    with torch.no_grad():
        walks = [plan.walk(module, given) for given in batches]
        sent: list[Any] = [None] * len(walks)
        for step in program.steps:
            brought = [walk.send(value)[1] for walk, value in zip(walks, sent, strict=True)]
            sent = see(step, brought)
            del brought


def live_bytes(program: Program, shapes: Mapping[str, Sequence[int]]) -> int:
    """The most bytes of values that are there at once, as float32, from their shapes.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.rehearsal import live_bytes
    >>> program = export(torch.nn.ReLU(), (torch.ones(2, 3),))
    >>> live_bytes(program, {"input": (2, 3), "relu": (2, 3)})
    48
    """
    sizes = {name: 4 * math.prod(shape) for name, shape in shapes.items()}
    now = sum(sizes.get(given.value.name, 0) for given in program.inputs)
    most = now
    for step, dead in zip(program.steps, program.last_use, strict=True):
        now += sizes.get(step.name, 0)
        most = max(most, now)
        now -= sum(sizes.get(name, 0) for name in dead if name not in program.parameters)
    return most
