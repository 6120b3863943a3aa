"""Without what nobody reads."""

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
