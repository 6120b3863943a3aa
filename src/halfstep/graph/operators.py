"""From the name of an operator to the function, and what is known of it."""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

import halfstep.graph.channel_clamp  # noqa: F401  (registers its operator)
from halfstep.errors import ArgumentError
from halfstep.graph.integer_ops import INTEGER
from halfstep.graph.program import TorchName

_ARITHMETIC = (
    *("abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "le", "lt", "mod", "mul"),
    *("ne", "neg", "not_", "or_", "pos", "pow", "sub", "truediv"),
)
_SYMBOLIC = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sum")


def _grad_mode(enabled: bool) -> bool:  # noqa: FBT001  (called as an operator)
    """Set the mode, and return what it was."""
    before = torch.is_grad_enabled()
    torch.autograd.grad_mode.set_grad_enabled(enabled)
    return before


GRAD_MODE = "python.grad_mode"
# The only functions beside torch's operators and the integer steps: arithmetic on sizes, and the
# gradient mode.
PYTHON: dict[str, Callable[..., Any]] = {
    **{f"operator.{name}": getattr(operator, name) for name in _ARITHMETIC},
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "sqrt", "trunc")},
    **{f"torch.{name}": getattr(torch, name) for name in _SYMBOLIC if hasattr(torch, name)},
    "python.round": round,
    GRAD_MODE: _grad_mode,
}
_NAMES = {function: name for name, function in reversed(PYTHON.items())}
# Questions that tracing asked and that the conditions answer; casts of nothing.
_CHECKS = (
    "aten._assert_async",
    "aten._assert_scalar",
    "aten._assert_tensor_metadata",
    "aten.sym_constrain_range",
)
_TYPES = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
    "device": torch.device,
}


def name_of(target: Any) -> str:
    """The name under which a program keeps a function.

    Raises ``ArgumentError`` for one that ``resolve`` would not find.
    """
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if target in _NAMES:
        return _NAMES[target]
    raise ArgumentError(f"{getattr(target, '__name__', target)} has no place in a program")


def resolve(op: str) -> Callable[..., Any]:
    """The function of that name.

    Raises ``ArgumentError`` when there is none.

    >>> from halfstep.graph.operators import resolve
    >>> resolve("aten.relu.default"), resolve("operator.mul")
    (<OpOverload(op='aten.relu', overload='default')>, <built-in function mul>)
    """
    known = PYTHON.get(op) or INTEGER.get(op)
    if known is not None:
        return known
    parts = op.split(".")
    found = getattr(torch.ops, parts[0], None) if len(parts) == 3 else None
    for part in parts[1:]:
        found = getattr(found, part, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise ArgumentError(
            f"there is no operator {op}: import the package that registers it, with the torch "
            "version that the model was captured in"
        )
    return found


def is_check(op: str) -> bool:
    """Whether a step only asserts something while tracing."""
    return op.startswith(_CHECKS)


def is_removable(op: str) -> bool:
    """Whether a step whose value nobody reads can go: no change in place, no random numbers."""
    if op == GRAD_MODE:
        return False
    function = resolve(op)
    if not isinstance(function, torch._ops.OpOverload):
        return True
    known = function.namespace in ("aten", "halfstep", "prims")
    return known and not is_random(op) and not function._schema.is_mutable


def is_random(op: str) -> bool:
    """Whether an operator draws numbers, so that each call brings others.

    >>> from halfstep.graph.operators import is_random
    >>> is_random("aten.rand_like.default"), is_random("aten.relu.default")
    (True, False)
    """
    function = resolve(op)
    if not isinstance(function, torch._ops.OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in function.tags


def torch_name(value: Any) -> TorchName | None:
    """The name of a dtype, layout, memory format or device; of anything else None."""
    for kind, types in _TYPES.items():
        if isinstance(value, types):
            return TorchName(kind, str(value).removeprefix("torch."))
    return None


def torch_value(name: TorchName) -> Any:
    """What a name stands for.

    Raises ``ArgumentError`` when torch has no such dtype, layout, memory format or device.
    """
    if name.kind == "device":
        return torch.device(name.name)
    value = getattr(torch, name.name, None)
    if not isinstance(value, _TYPES.get(name.kind, ())):
        raise ArgumentError(f"torch has no {name.kind} {name.name}")
    return value
