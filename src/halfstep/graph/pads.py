"""Padding with zeros before a convolution becomes the convolution's own."""

import dataclasses

from halfstep.graph.flow import Flow
from halfstep.graph.kinds import kind_of
from halfstep.graph.liveness import without_unread
from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value

_PAD = "aten.constant_pad_nd.default"


def pads_absorbed(program: Program) -> Program:
    """A normalized program in which convolutions pad by themselves where they can.

        conv(pad(x, p), padding=q) = conv(x, padding=p + q)

    holds for zeros, as many on both sides of each spatial dimension, that nothing else reads.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.normalize import normalized
    >>> from halfstep.graph.pads import pads_absorbed
    >>> model = torch.nn.Sequential(torch.nn.ZeroPad2d(1), torch.nn.Conv2d(2, 2, 3))
    >>> program = normalized(export(model, (torch.ones(2, 2, 5, 5),)))
    >>> print(pads_absorbed(program).steps[0])
    conv2d = aten.conv2d.default(input, 1.weight, 1.bias, (1, 1), (1, 1), (1, 1), 1)  # 1
    """
    flow = Flow(program)
    steps = tuple(_absorbed(step, flow) for step in program.steps)
    return without_unread(dataclasses.replace(program, steps=steps))


def _absorbed(step: Step, flow: Flow) -> Step:
    """The step, reading what is padded for it where it pads by itself."""
    kind = kind_of(step)
    if kind is None or kind.name != "conv":
        return step
    pad = flow.maker.get(step.args[0].name)
    if pad is None or pad.op != _PAD or flow.only_reader(pad.name) is not step:
        return step
    added = _both_sides(pad, len(step.args[3]))
    if added is None:
        return step
    padding = tuple(own + more for own, more in zip(step.args[4], added, strict=True))
    return dataclasses.replace(step, args=(pad.args[0], *step.args[1:4], padding, *step.args[5:]))


def _both_sides(pad: Step, dimensions: int) -> tuple[int, ...] | None:
    """The zeros on each side of each spatial dimension; None for another padding."""
    sides, value = pad.args[1], pad.args[2]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    fits = all(isinstance(side, int) and side >= 0 for side in sides)
    if isinstance(value, Value) or value != 0 or not fits:
        return None
    if any(before != after for before, after in pairs) or len(pairs) > dimensions:
        return None
    return tuple(before for before, _ in reversed(pairs + [(0, 0)] * (dimensions - len(pairs))))
