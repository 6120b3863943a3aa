"""Something to call a quantized model with, from what is known of its inputs."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.graph.product import Forward
from halfstep.graph.program import Input, Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.trees import Value, join, mapped


def example_of(model: nn.Module, shapes: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
    """Arguments of the model: random floats, zeros for integers and booleans.

    Floats lie in the range seen in calibration; where none was, they are normal ones.

    shapes: one for each tensor that it takes, in order; by default those of the calibration data,
        with one sample.

    Raises ``ArgumentError`` where the shapes are not known, or are too many or too few.

    >>> import torch
    >>> from halfstep.flows import ptq
    >>> from halfstep.flows.example import example_of
    >>> result = ptq.quantize(torch.nn.Linear(8, 4), torch.randn(32, 8))
    >>> {name: tuple(x.shape) for name, x in example_of(result.model).items()}
    {'input': (1, 8)}
    """
    forward = vars(model).get("forward")
    if not isinstance(forward, Forward):
        raise ArgumentError(
            "only parts of this model are programs, so that what it takes is not known: give data"
        )
    part = forward.programs[0]
    program = part.program if isinstance(part, Quantized) else part
    if shapes is None:
        shapes = [_seen(part, given) for given in program.inputs]
    if len(shapes) != len(program.inputs):
        names = ", ".join(given.value.name for given in program.inputs)
        raise ArgumentError(
            f"the model takes {len(program.inputs)} tensors ({names}), and {len(shapes)} shapes "
            "are given: give one for each, in this order"
        )
    made = {
        given.value: _tensor(part, given, shape)
        for given, shape in zip(program.inputs, shapes, strict=True)
    }
    arguments = mapped(program.arguments, lambda v: made[v] if isinstance(v, Value) else v)
    return {name: join(tree) for name, tree in _named(forward, arguments).items()}


def _named(forward: Forward, arguments: Any) -> dict[str, Any]:
    named = dict(zip(arguments.keys, arguments.children, strict=True))
    kinds = {name: one.kind for name, one in inspect.signature(forward).parameters.items()}
    for name in named:
        if kinds[name] not in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            raise ArgumentError(f"the model takes *{name}: give data")
    return named


def _seen(part: Program | Quantized, given: Input) -> tuple[int, ...]:
    """The shape in calibration, of one sample where the program takes any number of them."""
    shape = part.shapes.get(given.value.name) if isinstance(part, Quantized) else None
    if shape is None or not isinstance(part, Quantized):
        raise ArgumentError(
            f"the shape of {given.value.name} is not known, since the model was quantized without "
            "data: give a shape or data"
        )
    first = ("size", part.program.inputs.index(given), 0)
    conditions = [one for one in part.program.conditions if one.compare == "=="]
    fixed = any(one.left == first and isinstance(one.right, int) for one in conditions)
    return shape if fixed or not shape else (1, *shape[1:])


def _tensor(part: Program | Quantized, given: Input, shape: Sequence[int]) -> Tensor:
    dtype: torch.dtype = getattr(torch, given.dtype)
    if not dtype.is_floating_point:
        return torch.zeros(*shape, dtype=dtype)
    random = torch.Generator().manual_seed(0)
    edge = part.edges.get(given.value.name) if isinstance(part, Quantized) else None
    if edge is None:
        return torch.randn(*shape, generator=random).to(dtype)
    low, high = ((code - edge.zero_point) * edge.scale for code in (edge.qmin, edge.qmax))
    return torch.rand(*shape, generator=random).mul_(high - low).add_(low).to(dtype)
