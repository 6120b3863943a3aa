"""How many dimensions values have, as far as the steps tell."""

from collections.abc import Mapping

import torch

from halfstep.graph.operators import resolve
from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value, leaves

# Words in the names of operators whose result has as many dimensions as their first argument.
_ALIKE = (
    *("clamp_channels", "hardswish", "prelu", "type_as", ".to.", "aten.cat.default"),
    *("batch_norm", "clone", "contiguous", "conv", "dropout", "group_norm", "instance_norm"),
    *("layer_norm", "linear", "pad", "slice", "softmax", "transpose", "upsample", "avg_pool"),
    *("max_pool1d.default", "max_pool2d.default", "max_pool3d.default"),
)
_SHAPED = ("aten.view.default", "aten.reshape.default", "aten.permute.default")
_CHANGES = {"aten.unsqueeze.default": 1, "aten.select.int": -1}
_REDUCTIONS = ("aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default")


def ranks(program: Program) -> dict[str, int]:
    """The number of dimensions by the name of a value; a value of which it is not known is missing.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.ranks import ranks
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten())
    >>> ranks(export(model, (torch.ones(2, 1, 4, 4),)))
    {'input': 4, 'conv2d': 4, 'flatten': 2}
    """
    given = {each.value.name: each.ndim for each in program.inputs}
    known = {name: ndim for name, ndim in given.items() if ndim is not None}
    known |= {name: constant.ndim for name, constant in program.constants.items()}
    for step in program.steps:
        found: int | None = _rank_of(step, known)
        if found is not None:
            known[step.name] = found
    return known


def _rank_of(step: Step, known: Mapping[str, int]) -> int | None:
    if step.op in _SHAPED:
        return len(step.args[1])
    if step.op == "aten.flatten.using_ints" and step.args[1:] in ((1,), (1, -1)):
        return 2
    first = next(leaves(step.args), None)
    before = known.get(first.name) if isinstance(first, Value) else None
    return None if before is None else _after(step, before, known)


def _after(step: Step, before: int, known: Mapping[str, int]) -> int | None:
    """The rank of what a step brings, given that of its first argument."""
    if step.op in _REDUCTIONS:
        return _reduced(step, before)
    if step.op in _CHANGES:
        return before + _CHANGES[step.op]
    if any(word in step.op for word in _ALIKE):
        return before
    return _of_pointwise(step, known)


def _reduced(step: Step, before: int) -> int | None:
    """A reduction over some dimensions, which it keeps as ones or drops."""
    dims = step.args[1] if len(step.args) > 1 else ()
    if step.args[2:3] == (True,):
        return before
    if isinstance(dims, int):
        return before - 1
    return before - len(dims) if dims else None


def _of_pointwise(step: Step, known: Mapping[str, int]) -> int | None:
    """The largest among the arguments of an operator that works element by element."""
    function = resolve(step.op)
    if not isinstance(function, torch._ops.OpOverload):
        return None
    if torch.Tag.pointwise not in function.tags:
        return None
    values = [leaf for leaf in leaves(step.args) if isinstance(leaf, Value)]
    if any(value.name not in known for value in values):
        return None
    return max(known[value.name] for value in values)
