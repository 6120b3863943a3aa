"""What must hold of every program, checked before and after each change of it."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from halfstep.errors import ArgumentError
from halfstep.graph.operators import resolve, torch_value
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.run import find
from halfstep.graph.trees import Value, is_plain, leaves


def check(program: Program, model: nn.Module | None = None) -> None:
    """Nothing, for a program in order; with ``model`` also that its parameters are in the model.

    Raises ``ArgumentError`` that names the step: a value read before it is defined, or defined
    twice; an operator that does not exist; an argument that is no plain data; an output or an input
    that nothing defines; a parameter that the model lacks.

    >>> import torch
    >>> from halfstep.graph.check import check
    >>> from halfstep.graph.export import export
    >>> check(export(torch.nn.Linear(2, 1), (torch.ones(3, 2),)))
    """
    defined: set[str] = set()
    for name in _given(program):
        _define(defined, name, "the head of the program")
    for step in program.steps:
        where = f"step {step.name}"
        resolve(step.op)
        _check_arguments(step, defined)
        _define(defined, step.name, where)
    for leaf in leaves(program.outputs):
        if isinstance(leaf, Value) and leaf.name not in defined:
            raise ArgumentError(f"the output {leaf.name} is not defined by any step")
    inputs = {given.value for given in program.inputs}
    wanted = {leaf for leaf in leaves(program.arguments) if isinstance(leaf, Value)}
    if inputs != wanted:
        names = sorted(value.name for value in inputs ^ wanted)
        raise ArgumentError(f"inputs and arguments of the program differ in {names}")
    if model is not None:
        for path in program.parameters.values():
            find(model, path)


def _given(program: Program) -> Iterator[str]:
    yield from (given.value.name for given in program.inputs)
    yield from program.parameters
    yield from program.constants


def _define(defined: set[str], name: str, where: str) -> None:
    if name in defined:
        raise ArgumentError(f"{where} defines {name} a second time: every value has one definition")
    defined.add(name)


def _check_arguments(step: Step, defined: set[str]) -> None:
    for leaf in leaves((step.args, step.kwargs)):
        _check_leaf(leaf, step, defined)


def _check_leaf(leaf: Any, step: Step, defined: set[str]) -> None:
    if isinstance(leaf, Value):
        if leaf.name not in defined:
            raise ArgumentError(f"step {step.name} reads {leaf.name}, which nothing defined before")
    elif isinstance(leaf, TorchName):
        torch_value(leaf)
    elif not is_plain(leaf):
        raise ArgumentError(
            f"step {step.name} takes a {type(leaf).__name__}: allowed are numbers, text, None, "
            "names of torch, formats, values, and tuples of those"
        )
