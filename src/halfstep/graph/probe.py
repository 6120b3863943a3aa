"""Whether a program computes what the module computes, bit by bit, and for which sizes.

Tracing takes for granted that a size which it does not fix is at least 2, and so may be what is
computed from it. Where that is no more than caution is tried out on smaller inputs.
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
    for group in _groups(program, examples[0]):
        program = _relaxed(program, module, examples[0], group)
    for example in examples:
        check(program.conditions, _shapes(program, example), _names(program))
        if not equal(program, module, example):
            raise ArgumentError(
                "the traced program computes something else than forward on the example: forward "
                "depends on more than its arguments and parameters"
            )
    return program


def equal(program: Program, module: nn.Module, example: Branch) -> bool:
    """Whether both return the same bits, from the same random numbers and buffers."""
    return _same(_by_module(module, example), _by_program(program, module, example))


def _by_module(module: nn.Module, example: Branch) -> Any:
    with same_start(module):
        return split(call(module, _copied(example)))


def _by_program(program: Program, module: nn.Module, example: Branch) -> Any:
    unconditional = dataclasses.replace(program, conditions=())
    with same_start(module):
        return split(Plan(unconditional).run(module, _copied(example)))


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


def _relaxed(
    program: Program, module: nn.Module, example: Branch, group: frozenset[Any]
) -> Program:
    """Without the conditions that some smaller inputs break, and the program is right for all."""
    right: set[Condition] = set()
    wrong: set[Condition] = set()
    for size in _smaller(_length(program, example, group)):
        small = _narrowed(program, example, group, size)
        broken = {c for c in program.conditions if not c.holds(_shapes(program, small))}
        if broken and all(condition.compare != "==" for condition in broken):
            answer = _answer(program, module, small)
            right |= broken if answer is True else set()
            wrong |= broken if answer is False else set()
    kept = tuple(c for c in program.conditions if c not in right or c in wrong)
    return dataclasses.replace(program, conditions=kept)


def _answer(program: Program, module: nn.Module, example: Branch) -> bool | None:
    """Whether the program is right; None where the module refuses the size or returns NaN."""
    try:
        expected = _by_module(module, example)
    except Exception:  # noqa: BLE001  (each module refuses in its own way)
        return None
    if any(isinstance(leaf, Tensor) and bool((leaf != leaf).any()) for leaf in leaves(expected)):  # noqa: PLR0124
        return None
    try:
        return _same(expected, _by_program(program, module, example))
    except Exception:  # noqa: BLE001  (whatever an operator raises)
        return False


def _groups(program: Program, example: Branch) -> list[frozenset[Any]]:
    """Sizes to make smaller at once: those that always are equal, and those that are here."""
    shapes = _shapes(program, example)
    every = [("size", i, d) for i, shape in enumerate(shapes) for d in range(len(shape))]
    groups: dict[frozenset[Any], None] = {}
    for size in [condition.left for condition in program.conditions if condition.is_assumed]:
        equals = [c for c in program.conditions if c.compare == "==" and size in (c.left, c.right)]
        alone = {size} | {side for c in equals for side in (c.left, c.right)}
        length = shapes[size[1]][size[2]]
        groups[frozenset(alone)] = None
        groups[frozenset(alone | {s for s in every if shapes[s[1]][s[2]] == length})] = None
    return list(groups)


def _smaller(length: int) -> list[int]:
    """Halves of halves, down to 1."""
    return [length >> shift for shift in range(1, length.bit_length())]


def _length(program: Program, example: Branch, group: frozenset[Any]) -> int:
    shapes = _shapes(program, example)
    return min(
        size
        for i, shape in enumerate(shapes)
        for d, size in enumerate(shape)
        if ("size", i, d) in group
    )


def _narrowed(program: Program, example: Branch, group: frozenset[Any], size: int) -> Branch:
    """The example with some dimensions cut to a size."""
    tensors = {value.name: tensor for value, tensor in match(program.arguments, example)}
    for index, given in enumerate(program.inputs):
        name = given.value.name
        for dimension in range(given.ndim or 0):
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


def _same(expected: Any, found: Any) -> bool:
    return all(
        _same_leaf(one, other) for one, other in zip(leaves(expected), leaves(found), strict=True)
    )


def _same_leaf(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124  (NaN)
