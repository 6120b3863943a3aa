"""What nobody reads, and what nobody reads any more."""

import dataclasses

from halfstep.graph.operators import is_removable
from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value, leaves


def without_unread(program: Program) -> Program:
    """The program without steps, parameters and constants whose values nobody reads.

    >>> from halfstep.graph.liveness import without_unread
    >>> from halfstep.graph.program import Input, Program, Step
    >>> from halfstep.graph.trees import Branch, Value
    >>> x = Value("x")
    >>> steps = (Step("y", "aten.relu.default", (x,)), Step("z", "aten.neg.default", (x,)))
    >>> given = Branch(dict, ("x",), (x,))
    >>> program = Program((Input(x, "float32", 1),), given, Value("z"), steps)
    >>> [step.name for step in without_unread(program).steps]
    ['z']
    """
    read = {value.name for value in leaves(program.outputs) if isinstance(value, Value)}
    kept: list[Step] = []
    for step in reversed(program.steps):
        if step.name in read or not is_removable(step.op):
            kept.append(step)
            read.update(value.name for value in step.reads())
    return dataclasses.replace(
        program,
        steps=tuple(reversed(kept)),
        parameters={name: path for name, path in program.parameters.items() if name in read},
        constants={name: value for name, value in program.constants.items() if name in read},
    )


# Steps whose result lies in memory of its own, and that hand on nothing of what they are given.
_FRESH = ("int.conv", "int.conv_transpose", "int.linear", "int.add", "int.max_pool")
_RESIDUAL = 8


def owning(program: Program) -> frozenset[str]:
    """The convolutions that may write over their residual.

    It has memory of its own then, and no reader after them.

    >>> from halfstep.graph.liveness import owning
    >>> from halfstep.graph.program import Input, Program, Step
    >>> from halfstep.graph.trees import Branch, Value
    >>> x, a, b = map(Value, "xab")
    >>> def conv(name, x, residual):
    ...     return Step(name, "int.conv", (x, *[None] * 7, residual, None, None, None))
    >>> def program(*steps):
    ...     return Program((Input(x, "uint8", 4),), Branch(dict, ("x",), (x,)), Value("b"), steps)
    >>> owning(program(conv("a", x, None), conv("b", x, a)))
    frozenset({'b'})
    >>> owning(program(conv("a", x, None), conv("b", a, x)))
    frozenset()
    """
    makers = {step.name: step.op for step in program.steps}
    kept = {value.name for value in leaves(program.outputs) if isinstance(value, Value)}
    readers: dict[str, list[Step]] = {}
    for step in program.steps:
        for value in step.reads():
            readers.setdefault(value.name, []).append(step)

    def is_last(step: Step, name: str) -> bool:
        return readers[name][-1] is step and readers[name].count(step) == 1

    found = set()
    for step in program.steps:
        held = step.args[_RESIDUAL] if step.op == "int.conv" else None
        if not isinstance(held, Value) or held.name in kept or not is_last(step, held.name):
            continue
        ops = {makers.get(held.name), *(reader.op for reader in readers[held.name])}
        if ops.issubset(_FRESH):
            found.add(step.name)
    return frozenset(found)
