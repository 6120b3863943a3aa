"""Operators that change a value in place, and those that return what they would leave there."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from halfstep.graph.operators import resolve, torch_name
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.run import find
from halfstep.graph.trees import leaves

COPY = "aten.copy_.default"
# In place their result has the type of what they change; elsewhere it is bool.
_TESTS = {
    *("eq", "ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt", "ne"),
    *("not_equal", "logical_and", "logical_not", "logical_or", "logical_xor"),
}
# They keep the type of their first argument whatever the others are.
_KEEPERS = {
    *("copy", "fill", "masked_fill", "index_fill", "index_put", "index_copy", "index_add"),
    *("masked_scatter", "scatter", "scatter_add", "scatter_reduce", "index_reduce", "put"),
}


def changes(program: Program) -> Iterator[Step]:
    """The steps that change a value in place."""
    return (step for step in program.steps if is_mutable(step.op))


def is_functional(program: Program) -> bool:
    """Whether nothing changes in place but the inputs and the state of the model, at the end."""
    owned = {given.value.name for given in program.inputs} | set(program.parameters)
    count = sum(1 for _ in changes(program))
    last = program.steps[len(program.steps) - count :]
    return all(step.op == COPY and step.args[0].name in owned for step in last)


def is_mutable(op: str) -> bool:
    """Whether an operator says that it changes one of its arguments."""
    function = resolve(op)
    return isinstance(function, torch._ops.OpOverload) and function._schema.is_mutable


def twin_of(step: Step) -> str | None:
    """The operator that returns what a step would leave in its first argument."""
    function: Any = resolve(step.op)
    space, name, _ = step.op.split(".")
    schema = function._schema
    changed = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    in_place = name.endswith("_") and torch.Tag.inplace_view not in function.tags
    if not in_place or changed != [schema.arguments[0].name] or len(schema.returns) != 1:
        return None
    packet = getattr(getattr(torch.ops, space), name[:-1], None)
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)._schema
        if _kinds(found) == _kinds(schema) and not found.is_mutable:
            return f"{space}.{name[:-1]}.{overload}"
    return None


def _kinds(schema: Any) -> list[tuple[str, bool]]:
    """The types of an operator's arguments."""
    return [(str(argument.type), argument.kwarg_only) for argument in schema.arguments]


def is_mixed(program: Program, module: nn.Module | None) -> bool:
    """Whether there may be tensors of two floating or of two integer types.

    Python's numbers become float32 and int64.
    """
    tensors = [*program.constants.values()]
    if module is not None:
        tensors += [find(module, path) for path in program.parameters.values()]
    found = [torch_name(tensor.dtype) for tensor in tensors]
    found += [leaf for step in program.steps for leaf in leaves((step.args, step.kwargs))]
    names = {"float32", "int64", *(given.dtype for given in program.inputs)}
    names |= {leaf.name for leaf in found if isinstance(leaf, TorchName) and leaf.kind == "dtype"}
    names |= {"float64" for step in program.steps if step.op.startswith("aten.float_power")}
    return len(names - {"bool"}) > 2


def widens(step: Step, *, mixed: bool) -> bool:
    """Whether a twin's result may be of another type than what would be changed in place."""
    kind = step.op.split(".")[1]
    several = len(list(step.reads())) > 1
    return kind in _TESTS or (mixed and several and kind not in _KEEPERS)
