"""The zoo's models with their programs changed, to be run beside the models themselves."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from halfstep.graph.capture import Captured, Region, capture
from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.functional import functional
from halfstep.graph.normalize import normalized
from halfstep.graph.product import product
from halfstep.graph.program import Program
from tests.graph.zoo_cases import PARTS, WHOLE, made

Pass: TypeAlias = Callable[[Program, nn.Module], Program]

CASES = {**WHOLE, **{name: case for name, (case, _) in PARTS.items()}}


@functools.cache
def captured(name: str) -> tuple[nn.Module, Captured]:
    """The model of a case of the zoo and what is captured of it."""
    torch.backends.mha.set_fastpath_enabled(False)
    case = CASES[name]
    model = made(case)
    args, kwargs = case.arguments()[0]
    return model, capture(model, args, kwargs)


def changed(model: nn.Module, found: Captured, change: Pass) -> nn.Module:
    """A copy of the model that runs the changed programs; each is in order before and after."""

    def region(each: Region) -> Region:
        module = model.get_submodule(each.path)
        programs = tuple(change(program, module) for program in each.programs)
        for program in (*each.programs, *programs):
            check(program, module)
        return replace(each, programs=programs)

    return product(model, Captured(tuple(map(region, found.regions))))


def prepared(program: Program, module: nn.Module) -> Program:
    """The program after the two passes that come first."""
    result = functional(program, module)
    assert not result.reasons
    return normalized(result.program, module)


def runner(model: nn.Module, program: Program) -> nn.Module:
    """A copy of a model that runs a program."""
    return product(model, Captured((Region("", (program,)),)))


def exported(model: nn.Module, *args: Any) -> Program:
    """The program of a model in eval mode after the passes that come first."""
    return prepared(export(model.eval(), args), model)


def cloned(args: Any) -> Any:
    """The same arguments in memory of their own."""
    return _pytree.tree_map_only(Tensor, torch.clone, args)


def flat(output: Any) -> list[Any]:
    """The leaves of an output, dataclasses opened."""
    leaves = _pytree.tree_leaves(output)
    opened = [list(vars(leaf).values()) if hasattr(leaf, "score") else [leaf] for leaf in leaves]
    return [leaf for group in opened for leaf in group]


def pairs(model: nn.Module, twin: nn.Module, name: str) -> list[tuple[Any, Any]]:
    """What both return for all calls of a case, leaf by leaf."""
    found: list[tuple[Any, Any]] = []
    with torch.no_grad():
        for args, kwargs in CASES[name].arguments():
            one, other = model(*cloned(args), **kwargs), twin(*cloned(args), **kwargs)
            found += zip(flat(one), flat(other), strict=True)
    return found


def same(one: Any, other: Any) -> bool:
    """The same bits, or the same plain value."""
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)
