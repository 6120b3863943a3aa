"""Programs as JSON; their constants are tensors in the file beside it."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.allowed_ops import check_op
from halfstep.formats.plain_sizes import condition_from_plain, condition_to_plain
from halfstep.formats.plain_trees import checked_text, from_plain, to_plain
from halfstep.graph.check import check
from halfstep.graph.program import Input, Program, Step
from halfstep.graph.trees import Branch, Value

Keep: TypeAlias = Callable[[str, Tensor], str]
Load: TypeAlias = Callable[[str], Tensor]
MAX_DIMS: Final = 64


def program_to_plain(program: Program, keep: Keep) -> dict[str, Any]:
    """A program as JSON values.

    ``keep`` is given each constant, with the name of its value, and returns where it is stored.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> program = export(torch.nn.ReLU(), (torch.ones(2, 3),))
    >>> program_to_plain(program, lambda name, tensor: name)["steps"]
    [{'name': 'relu', 'op': 'aten.relu.default', 'args': [{'value': 'input'}]}]
    """
    return {
        "inputs": [[given.value.name, given.dtype, given.ndim] for given in program.inputs],
        "arguments": to_plain(program.arguments),
        "parameters": dict(program.parameters),
        "constants": {name: keep(name, tensor) for name, tensor in program.constants.items()},
        "steps": [_step_to_plain(step) for step in program.steps],
        "outputs": to_plain(program.outputs),
        "conditions": [condition_to_plain(condition) for condition in program.conditions],
        "training": program.training,
    }


def _step_to_plain(step: Step) -> dict[str, Any]:
    plain = {"name": step.name, "op": step.op, "args": to_plain(step.args)}
    if step.kwargs:
        plain["kwargs"] = {name: to_plain(value) for name, value in step.kwargs}
    return plain | ({"source": step.source} if step.source else {})


def program_from_plain(plain: Any, load: Load) -> Program:
    """The inverse of ``program_to_plain``; ``load`` brings the constants. Nothing is executed.

    Raises ``FileFormatError`` for anything else than a program in order, over allowed operators.
    """
    match plain:
        case {
            "inputs": list(inputs),
            "arguments": arguments,
            "parameters": dict(parameters),
            "constants": dict(constants),
            "steps": list(steps),
            "outputs": outputs,
            "conditions": list(conditions),
            "training": bool(training),
        }:
            given = tuple(map(_input, inputs))
            ranks = [each.ndim or 0 for each in given]
            program = Program(
                given,
                _arguments(arguments),
                from_plain(outputs),
                tuple(map(_step, steps)),
                {name: checked_text(path, "a parameter") for name, path in parameters.items()},
                {name: load(checked_text(at, "a constant")) for name, at in constants.items()},
                tuple(condition_from_plain(condition, ranks) for condition in conditions),
                training,
            )
            return _checked(program)
    raise FileFormatError(f"a program is incomplete: {str(plain)[:200]}")


def _checked(program: Program) -> Program:
    try:
        check(program)
    except HalfstepError as error:
        raise FileFormatError(f"its program is not in order: {error}") from error
    return program


def _arguments(plain: Any) -> Branch:
    arguments = from_plain(plain)
    if not isinstance(arguments, Branch):
        raise FileFormatError("the arguments of a program are no names and values")
    return arguments


def _input(plain: Any) -> Input:
    match plain:
        case [str(name), str(dtype), None | int() as ndim] if 0 <= (ndim or 0) <= MAX_DIMS:
            return Input(Value(name), from_plain({"dtype": dtype}).name, ndim)
    raise FileFormatError(
        f"an input is no name, dtype and number of dimensions: {str(plain)[:100]}"
    )


def _step(plain: Any) -> Step:
    match plain:
        case {"name": str(name), "op": str(op), "args": list(args), **rest}:
            try:
                check_op(op)
                kwargs = rest.pop("kwargs", {})
                source = checked_text(rest.pop("source", ""), "the source")
                if isinstance(kwargs, dict) and not rest:
                    named = tuple((key, from_plain(value)) for key, value in kwargs.items())
                    return Step(name, op, from_plain(args), named, source)
            except FileFormatError as error:
                raise FileFormatError(f"step {name[:100]}: {error}") from error
    raise FileFormatError(f"a step needs a name, an op and args, and is {str(plain)[:200]}")
