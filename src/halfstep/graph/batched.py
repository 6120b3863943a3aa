"""Programs in which convolutions and pools are always given a batch."""

import re
from collections.abc import Iterator
from dataclasses import replace

from halfstep.graph.names import Names
from halfstep.graph.program import Program, Step
from halfstep.graph.ranks import ranks
from halfstep.graph.trees import Value

_SPATIAL = re.compile(
    r"aten\.(?:conv|conv_transpose|max_pool|avg_pool|adaptive_avg_pool)([123])d\."
)


def batched(program: Program) -> Program:
    """The program with a batch of one around every convolution and pool of a single image.

    It computes the same bits; integer kernels then have one form to serve.

    >>> import torch
    >>> from halfstep.graph.batched import batched
    >>> from halfstep.graph.export import export
    >>> print(batched(export(torch.nn.MaxPool1d(2), (torch.ones(3, 8),))))
    program(input):
      max_pool1d_batch = aten.unsqueeze.default(input, 0)
      max_pool1d_one = aten.max_pool1d.default(max_pool1d_batch, (2,), (2,))
      max_pool1d = aten.squeeze.dim(max_pool1d_one, 0)
      return max_pool1d
    """
    known, names = ranks(program), Names.of(program)
    steps = tuple(made for step in program.steps for made in _batched(step, known, names))
    return replace(program, steps=steps)


def _batched(step: Step, known: dict[str, int], names: Names) -> Iterator[Step]:
    spatial = _SPATIAL.match(step.op)
    if spatial is None or known.get(step.args[0].name) != int(spatial[1]) + 1:
        yield step
        return
    batch, one = names.fresh(f"{step.name}_batch"), names.fresh(f"{step.name}_one")
    yield Step(batch, "aten.unsqueeze.default", (step.args[0], 0), source=step.source)
    yield replace(step, name=one, args=(Value(batch), *step.args[1:]))
    yield Step(step.name, "aten.squeeze.dim", (Value(one), 0), source=step.source)
