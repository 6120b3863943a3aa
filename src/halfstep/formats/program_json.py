"""Programs, and what is decided of them, as JSON; constants are tensors in the file beside it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.allowed_ops import check_op
from halfstep.formats.plain_sizes import condition_from_plain, condition_to_plain
from halfstep.formats.plain_trees import (
    checked_text,
    edge_from_plain,
    edge_to_plain,
    from_plain,
    to_plain,
)
from halfstep.graph.check import check
from halfstep.graph.edges import Edge
from halfstep.graph.program import Input, Program, Step
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.trees import Branch, Value
from halfstep.spec import QSpec

Part: TypeAlias = Program | Quantized
Load: TypeAlias = Callable[[str], Tensor]
MAX_DIMS = 64


def part_to_plain(part: Part, keep: Callable[[str, Tensor], str]) -> dict[str, Any]:
    """A program, calibrated or not, as JSON values.

    ``keep`` is given each constant, with the name of its value, and returns where it is stored.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> program = export(torch.nn.ReLU(), (torch.ones(2, 3),))
    >>> part_to_plain(program, lambda name, tensor: name)["program"]["steps"]
    [{'name': 'relu', 'op': 'aten.relu.default', 'args': [{'value': 'input'}]}]
    """
    if isinstance(part, Program):
        return {"program": _program_to_plain(part, keep)}
    return {
        "program": _program_to_plain(part.program, keep),
        "edges": {name: edge_to_plain(edge) for name, edge in part.edges.items()},
        "decisions": {name: _decision_to_plain(made) for name, made in part.decisions.items()},
    }


def part_from_plain(plain: Any, load: Load) -> Part:
    """The inverse of ``part_to_plain``; ``load`` brings the constants. Nothing is executed.

    Raises ``FileFormatError`` for anything else than a program in order, over allowed operators.
    """
    match plain:
        case {"program": dict(program)} if len(plain) == 1:
            return _program_from_plain(program, load)
        case {"program": dict(program), "edges": dict(edges), "decisions": dict(decisions)}:
            read = _program_from_plain(program, load)
            return Quantized(read, _edges(edges, read), _decisions(decisions, read))
    raise FileFormatError("a program lacks its steps, its edges or its decisions")


def _program_to_plain(program: Program, keep: Callable[[str, Tensor], str]) -> dict[str, Any]:
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


def _decision_to_plain(made: Decision) -> dict[str, Any]:
    plain: dict[str, Any] = {"execution": made.execution.value}
    if made.reason:
        plain["reason"] = made.reason
    formats = {"weight": made.weight, "input": made.input}
    return plain | {name: spec.to_dict() for name, spec in formats.items() if spec is not None}


def _program_from_plain(plain: dict[str, Any], load: Load) -> Program:
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
    raise FileFormatError(f"a program is incomplete: it has {', '.join(map(str, plain))[:200]}")


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


def _edges(plain: Mapping[str, Any], program: Program) -> dict[str, Edge]:
    values = {each.value.name for each in program.inputs} | {step.name for step in program.steps}
    values |= {*program.parameters, *program.constants}
    _check_names(plain, values, "an edge")
    return {name: edge_from_plain(edge) for name, edge in plain.items()}


def _decisions(plain: Mapping[str, Any], program: Program) -> dict[str, Decision]:
    _check_names(plain, {step.name for step in program.steps}, "a decision")
    return {name: _decision(name, decision) for name, decision in plain.items()}


def _check_names(names: Mapping[str, Any], known: set[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise FileFormatError(f"{what} is of {name[:100]!r}, which its program does not have")


def _decision(name: str, plain: Any) -> Decision:
    rest = dict(plain) if isinstance(plain, dict) else {}
    try:
        execution = Execution(rest.pop("execution", None))
        reason = checked_text(rest.pop("reason", ""), "the reason")
        weight, given = (
            None if rest.get(key) is None else QSpec.from_dict(rest.pop(key))
            for key in ("weight", "input")
        )
    except (HalfstepError, TypeError, ValueError) as error:
        raise FileFormatError(f"the decision on {name[:100]}: {error}") from error
    if rest:
        raise FileFormatError(f"the decision on {name[:100]} has unknown parts: {str(rest)[:100]}")
    return Decision(execution, reason, weight, given)
