"""Whether a program computes what the module computes, bit by bit, and for which sizes.

Tracing takes for granted that a size which it does not fix is at least 2. Whether the program also
holds for a size of 1 is tried out, one size after the other.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.graph.export import call
from halfstep.graph.program import Program
from halfstep.graph.run import Plan
from halfstep.graph.sizes import Condition, check
from halfstep.graph.trees import Branch, Value, leaves, mapped, match, split


def proved(program: Program, module: nn.Module, examples: Sequence[Branch]) -> Program:
    """The program with the conditions that it needs, equal to the module on all examples.

    Raises ``ArgumentError`` when the two differ, or an example is outside the conditions.
    """
    for condition in program.conditions:
        if condition.is_assumed:
            program = _relaxed(program, module, examples[0], condition)
    for example in examples:
        check(program.conditions, _shapes(program, example), _names(program))
        if not equal(program, module, example):
            raise ArgumentError(
                "the traced program computes something else than forward on the example: forward "
                "depends on more than its arguments and parameters"
            )
    return program


def equal(program: Program, module: nn.Module, example: Branch, *, numbers: bool = False) -> bool:
    """Whether both return the same bits, from the same random numbers and buffers.

    With ``numbers`` a NaN proves nothing, and is not equal to another.
    """
    unconditional = dataclasses.replace(program, conditions=())
    with same_start(module):
        expected = split(call(module, _copied(example)))
    with same_start(module):
        found = split(Plan(unconditional).run(module, _copied(example)))
    pairs = zip(leaves(expected), leaves(found), strict=True)
    return all(_same(one, other, numbers=numbers) for one, other in pairs)


@contextmanager
def same_start(module: nn.Module) -> Iterator[None]:
    """No gradients, fixed random numbers, and afterwards the buffers as they were.

    Also without the fused attention of torch, which rounds differently and is never traced.
    """
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with torch.no_grad(), torch.random.fork_rng(devices):
            torch.manual_seed(0)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _relaxed(program: Program, module: nn.Module, example: Branch, condition: Condition) -> Program:
    """Without the conditions that stand against a size of 1, if the program is right for it."""
    alone, together = _as_long(program, example, condition.left)
    for group in (alone, together) if together != alone else (alone,):
        one, two = (_narrowed(program, example, group, size) for size in (1, 2))
        broken = {c for c in program.conditions if not c.holds(_shapes(program, one))}
        # A condition that 2 breaks as well answers a question of forward's own code.
        if all(c.holds(_shapes(program, two)) for c in broken) and _holds(program, module, one):
            kept = tuple(other for other in program.conditions if other not in broken)
            return dataclasses.replace(program, conditions=kept)
    return program


def _holds(program: Program, module: nn.Module, example: Branch) -> bool:
    try:
        return equal(program, module, example, numbers=True)
    except Exception:  # noqa: BLE001  (the module refuses the size in its own way)
        return False


def _as_long(program: Program, example: Branch, size: Any) -> tuple[set[Any], set[Any]]:
    """The sizes that always equal this one; and those that do so in the example."""
    alone = {size}
    for condition in program.conditions:
        if condition.compare == "==" and size in (condition.left, condition.right):
            alone |= {condition.left, condition.right}
    shapes = _shapes(program, example)
    length = shapes[size[1]][size[2]]
    every = (("size", i, d) for i, shape in enumerate(shapes) for d in range(len(shape)))
    return alone, alone | {other for other in every if shapes[other[1]][other[2]] == length}


def _narrowed(program: Program, example: Branch, group: set[Any], size: int) -> Branch:
    """The example with some dimensions cut to a size."""
    tensors = {value.name: tensor for value, tensor in match(program.arguments, example)}
    for index, given in enumerate(program.inputs):
        name = given.value.name
        for dimension in range(given.ndim):
            if ("size", index, dimension) in group:
                tensors[name] = tensors[name].narrow(dimension, 0, size)
    filled: Branch = mapped(
        program.arguments, lambda leaf: tensors[leaf.name] if isinstance(leaf, Value) else leaf
    )
    return filled


def _shapes(program: Program, example: Branch) -> list[torch.Size]:
    tensors = dict(match(program.arguments, example))
    return [tensors[given.value].shape for given in program.inputs]


def _names(program: Program) -> list[str]:
    return [given.value.name for given in program.inputs]


def _copied(example: Branch) -> Branch:
    made: Branch = mapped(example, copied_leaf)
    return made


def copied_leaf(leaf: Any) -> Any:
    """A tensor of its own memory; anything else as it is."""
    return leaf.detach().clone() if isinstance(leaf, Tensor) else copy.copy(leaf)


def _same(one: Any, other: Any, *, numbers: bool) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    equals = one == other
    if not numbers:
        equals |= (one != one) & (other != other)  # noqa: PLR0124  (NaN)
    return bool(equals.all())
