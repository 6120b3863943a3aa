"""The captured model as an object: a copy of the user's, whose captured modules run programs."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.graph.capture import Captured
from halfstep.graph.check import check
from halfstep.graph.engine import Engine, Runnable
from halfstep.graph.export import arguments
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Plan, find


def product(model: nn.Module, *captured: Captured) -> nn.Module:
    """A copy of the model in which every captured module runs its program.

    It is of the model's class, with its attributes, methods, submodules and state; the programs
    read the parameters of the copy. Given a capture in ``train`` and one in ``eval`` mode, the
    module's mode picks the program; given one, that one runs in both modes. Forward hooks of
    modules inside a captured one are not called.

    Raises ``ArgumentError`` when a program does not fit the model.

    >>> import torch
    >>> from halfstep.graph.capture import capture
    >>> from halfstep.graph.product import product
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()).eval()
    >>> twin = product(model, capture(model, (torch.ones(1, 2),)))
    >>> x = torch.randn(5, 2)
    >>> type(twin), torch.equal(twin(x), model(x))
    (<class 'torch.nn.modules.container.Sequential'>, True)
    """
    programs: dict[str, list[Program | Quantized]] = {}
    for each in captured:
        for path, several in each.programs.items():
            programs.setdefault(path, []).extend(several)
    twin = copy.deepcopy(model)
    install(twin, programs)
    return twin


def install(
    model: nn.Module,
    parts: Mapping[str, Sequence[Program | Quantized]],
    engine: Engine | None = None,
    *,
    lenient: bool = False,
) -> None:
    """Let the modules of a model at these paths run programs; ``engine`` runs calibrated ones.

    ``lenient`` modules run their own Python for arguments of a kind that no program takes.

    Raises ``ArgumentError`` when a program does not fit the model.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    for path, found in parts.items():
        if path not in modules:
            raise ArgumentError(f"the model has no module {path}, which was captured")
        for part in found:
            check(_program(part), modules[path])
        modules[path].__dict__["forward"] = Forward(modules[path], found, engine, lenient=lenient)


def sharing(model: nn.Module) -> nn.Module:
    """A copy of a model with the same parameters and buffers, whose modules run what they like."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def put(model: nn.Module, path: str, value: Tensor) -> None:
    """Replace the parameter or buffer at a path, wherever in the model the same one is used."""
    old = find(model, path)
    as_parameter = nn.Parameter(value, requires_grad=False)
    for module in model.modules():
        for name in [name for name, one in module._parameters.items() if one is old]:
            setattr(module, name, as_parameter)
        for name in [name for name, one in module._buffers.items() if one is old]:
            module._buffers[name] = value


def _program(part: Program | Quantized) -> Program:
    return part.program if isinstance(part, Quantized) else part


class Forward:
    """The forward of one captured module: an attribute of the object, not of its class.

    So the class stays the user's, and the module is copied and pickled as any other.
    """

    def __init__(
        self,
        module: nn.Module,
        programs: Sequence[Program | Quantized],
        engine: Engine | None = None,
        *,
        lenient: bool = False,
    ) -> None:
        self.module = module
        self.lenient = lenient
        self.programs = list(programs)
        self.engine = engine
        self.original = vars(module).get("forward")

    @cached_property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.python)

    @property
    def python(self) -> Callable[..., Any]:
        """What the module's forward was before."""
        own: Callable[..., Any] = type(self.module).forward.__get__(self.module)
        return self.original or own

    @cached_property
    def plans(self) -> dict[bool, list[Runnable]]:
        """The plans to choose from in training and outside of it."""
        every = [self._plan(part) for part in self.programs]
        return {
            mode: [plan for plan in every if plan.program.training == mode] or every
            for mode in (True, False)
        }

    def _plan(self, part: Program | Quantized) -> Runnable:
        if isinstance(part, Program):
            return Plan(part)
        if self.engine is None:
            raise ArgumentError("a calibrated program needs an engine to run it: give engine=")
        return self.engine.plan(part, self.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program of the module's mode and of this kind of arguments."""
        try:
            given = arguments(self.__signature__, args, kwargs)
        except ArgumentTypeError:
            if self.lenient:
                return self.python(*args, **kwargs)
            raise
        plans = self.plans[self.module.training]
        sure = plans if self.lenient else plans[:-1]
        fitting = next((plan for plan in sure if plan.takes(given)), None)
        if fitting is None and self.lenient:
            return self.python(*args, **kwargs)
        return (fitting or plans[-1]).run(self.module, given)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("module", "programs", "engine", "original", "lenient")
        return {name: vars(self)[name] for name in kept}
