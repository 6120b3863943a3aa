"""What a rule may match, as text: how it prints, and how it is written to and read from JSON."""

import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

import torch

from halfstep.errors import ArgumentError, ArgumentTypeError

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType)
_OPERATORS = (type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))


def as_operator(match: Any) -> Any:
    """The operator of a function of torch, as ``torch.ops.aten.add`` of ``torch.add``.

    Anything else as it is. Raises ``ArgumentError`` for a function of torch that is no operator.

    >>> import torch
    >>> as_operator(torch.add), as_operator(torch.nn.functional.relu), as_operator("fc")
    (<OpOverloadPacket(op='aten.add')>, <OpOverloadPacket(op='aten.relu')>, 'fc')
    """
    if not isinstance(match, _FUNCTIONS) or not _is_torch(match):
        return match
    found = getattr(torch.ops.aten, match.__name__.rstrip("_"), None)
    if found is None:
        raise ArgumentError(
            f"{match.__name__} of torch is no single operator: match a module's name or type, or "
            "one of torch.ops.aten, such as torch.ops.aten.conv2d"
        )
    return found


def operator_name(match: Any) -> str | None:
    """The name of an operator in a program, with or without its overload; else None.

    >>> import torch
    >>> operator_name(torch.ops.aten.add), operator_name(torch.ops.aten.add.Tensor)
    ('aten.add', 'aten.add.Tensor')
    """
    return str(match) if isinstance(match, _OPERATORS) else None


def source_of(match: Any) -> str:
    """The match as Python that evaluates to it, where there is such text.

    >>> import torch
    >>> print(source_of("layer1.*"), source_of(torch.nn.Linear), source_of(torch.ops.aten.add))
    'layer1.*' torch.nn.modules.linear.Linear torch.ops.aten.add
    """
    if isinstance(match, type):
        return path_of(match)
    name = operator_name(match)
    return repr(match) if name is None else f"torch.ops.{name}"


def match_to_dict(match: Any) -> str | dict[str, str]:
    """The match as plain data: text for a name, else whether it is a type or an operator.

    Raises ``ArgumentTypeError`` for a module object, a function, or anything else that only lives
    in this process.

    >>> import torch
    >>> match_to_dict("fc"), match_to_dict(torch.nn.Linear), match_to_dict(torch.ops.aten.add)
    ('fc', {'type': 'torch.nn.modules.linear.Linear'}, {'op': 'aten.add'})
    """
    if isinstance(match, str):
        return match
    name = operator_name(match)
    if name is not None:
        return {"op": name}
    if isinstance(match, type) and "<locals>" not in match.__qualname__:
        return {"type": path_of(match)}
    raise ArgumentTypeError(
        f"a rule for {_shown(match)} cannot be written to JSON, since it lives in this process "
        "only: match by name, glob, operator, or a class that can be imported"
    )


def match_from_dict(plain: Any) -> Any:
    """The match that ``match_to_dict`` wrote. Nothing is imported.

    Raises ``ArgumentError`` for a class whose module is not loaded, and for what it cannot read.
    """
    if isinstance(plain, str):
        return plain
    if isinstance(plain, Mapping) and len(plain) == 1:
        ((kind, name),) = plain.items()
        if kind == "type" and isinstance(name, str):
            return class_at(name)
        if kind == "op" and isinstance(name, str):
            return operator_at(name)
    raise ArgumentError(
        f"{plain!r} is no match: allowed are a name or glob, {{'type': 'package.module.Class'}} "
        "and {'op': 'aten.add'}"
    )


def path_of(kind: type) -> str:
    """Where a class is found: module and name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def class_at(path: str) -> type:
    """The class at a path, among the modules that are already loaded.

    Raises ``ArgumentError`` when there is none.

    >>> class_at("torch.nn.modules.linear.Linear")
    <class 'torch.nn.modules.linear.Linear'>
    """
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        if found is None:
            continue
        for part in parts[cut:]:
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        if isinstance(found, type):
            return found
        break
    raise ArgumentError(
        f"the recipe names the class {path}, which is not loaded: import its module first; a "
        "recipe imports nothing by itself"
    )


def operator_at(name: str) -> Any:
    """The operator of a name such as "aten.add".

    Raises ``ArgumentError`` when there is none.

    >>> operator_at("aten.add.Tensor")
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    found: Any = torch.ops
    for part in name.split("."):
        found = None if part.startswith("_") else getattr(found, part, None)
    if not isinstance(found, _OPERATORS):
        raise ArgumentError(
            f"the recipe names the operator {name}, which torch {torch.__version__} does not have: "
            "allowed are names such as 'aten.add' and 'aten.add.Tensor'"
        )
    return found


def _is_torch(function: Any) -> bool:
    home: str = getattr(function, "__module__", None) or function.__objclass__.__module__
    return home == "_operator" or home.partition(".")[0] == "torch"


def _shown(match: Any) -> str:
    if isinstance(match, type | FunctionType):
        return match.__qualname__
    return f"an object of {type(match).__name__}"
