"""Run a program whose parameters do not change: what depends on them alone is computed once."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from halfstep.graph.liveness import owning
from halfstep.graph.operators import is_removable, resolve, torch_value
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.run import Hook, Plan, Walk, find
from halfstep.graph.trees import Branch, Value, leaves, mapped
from halfstep.tensor import QTensor


@dataclass(frozen=True)
class Bound:
    """What runs a step in place of its operator, and what it is called with.

    A function may have a method ``over``: the same, but it may write over its last argument.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]


Lookup: TypeAlias = Callable[[Any], Any]
# Chooses a kernel for a step; ``lookup`` gives the tensor of a value that is known beforehand, and
# None for one that is computed in each run. None leaves the step to its operator.
Bind: TypeAlias = Callable[[Step, Lookup], Bound | None]


class Frozen:
    """A program made ready to run over parameters that stay as they are.

    Steps that read parameters and constants alone run once; kernels are chosen once. When a
    parameter is replaced or written to, both are done anew by the next run.

    >>> import torch
    >>> from halfstep.graph.export import arguments, export
    >>> from halfstep.graph.frozen import Frozen
    >>> model, x = torch.nn.Linear(2, 1), torch.ones(3, 2)
    >>> frozen = Frozen(export(model, (x,)))
    >>> import inspect
    >>> given = arguments(inspect.signature(model.forward), (x,), {})
    >>> torch.equal(frozen.run(model, given), model(x))
    True
    """

    def __init__(self, program: Program, bind: Bind | None = None) -> None:
        self.program = program
        self.bind = bind
        self._outer = Plan(program)
        self._made: tuple[nn.Module, Watch, Plan] | None = None

    def takes(self, given: Branch) -> bool:
        """Whether the program is for arguments of this kind."""
        return self._outer.takes(given)

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the program returns for these arguments, over the parameters of ``module``."""
        plan = self._plan_over(module)
        with torch.no_grad():
            return plan.run(module, given, hook)

    def walk(self, module: nn.Module, given: Branch) -> Walk:
        """As ``Plan.walk``, without the steps that depend on parameters alone."""
        return self._plan_over(module).walk(module, given)

    def _plan_over(self, module: nn.Module) -> Plan:
        made = self._made
        if made is None or made[0] is not module or made[1].has_changed():
            tensors = {name: find(module, path) for name, path in self.program.parameters.items()}
            watch = Watch(module, self.program.parameters.values())
            made = self._made = (module, watch, self._plan(tensors))
        return made[2]

    def _plan(self, tensors: Mapping[str, Tensor]) -> Plan:
        return Plan(*ready(self.program, tensors, self.bind), owning=owning(self.program))


def ready(
    program: Program, tensors: Mapping[str, Tensor], bind: Bind | None = None
) -> tuple[Program, dict[str, Callable[..., Any]]]:
    """The steps that are left for each run, and the kernels of those that have one, by name.

    tensors: what the parameters are, by the names of their values.
    """
    with torch.no_grad(), torch.inference_mode(mode=False):
        known, steps = _split(program, {**program.constants, **tensors})
    functions: dict[str, Callable[..., Any]] = {}
    kept: list[Step] = []
    for step in steps:
        bound = bind(step, lambda v: known.get(v.name)) if bind else None
        if bound is None:
            kept.append(step)
            continue
        functions[step.name] = bound.function
        kept.append(dataclasses.replace(step, args=bound.args, kwargs=()))
    read = {value.name for step in kept for value in step.reads()}
    read |= {v.name for v in leaves(program.outputs) if isinstance(v, Value)}
    rest = dataclasses.replace(
        program,
        steps=tuple(kept),
        parameters={},
        constants={name: value for name, value in known.items() if name in read},
    )
    return rest, functions


class Watch:
    """Notices when a module on the way to some tensors, or one of them, is another or written to.

    Looked at before each run, so it is flat: entries of dicts, and version counters.
    """

    def __init__(self, module: nn.Module, paths: Iterable[str]) -> None:
        self.entries: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self.versions: list[tuple[Tensor, int]] = []
        for path in dict.fromkeys(paths):
            *owners, name = path.split(".")
            owner: Any = module
            for part in owners:
                self._add(owner._modules, part)
                owner = owner._modules[part]
            homes = (owner._parameters, owner._buffers, vars(owner))
            home: dict[str, Any] = next(each for each in homes if each.get(name) is not None)
            self._add(home, name)
            tensor = home[name]
            inner = tensor.stored() if isinstance(tensor, QTensor) else (tensor,)
            self.versions += [(part, part._version) for part in inner if not part.is_inference()]

    def _add(self, home: dict[str, Any], name: str) -> None:
        self.entries[id(home), name] = (home, name, home[name])

    def has_changed(self) -> bool:
        """Whether anything is no longer as it was."""
        for home, name, value in self.entries.values():
            if home.get(name) is not value:
                return True
        for tensor, version in self.versions:  # noqa: SIM110  (twice as fast as any())
            if tensor._version != version:
                return True
        return False


def _split(program: Program, known: dict[str, Any]) -> tuple[dict[str, Any], list[Step]]:
    """Values that depend on what is known alone, and the steps that do not."""
    steps: list[Step] = []
    for step in program.steps:
        static = is_removable(step.op) and any(True for _ in step.reads())
        if static and all(value.name in known for value in step.reads()):
            args = mapped(step.args, lambda leaf: _known(leaf, known))
            kwargs = {name: mapped(v, lambda leaf: _known(leaf, known)) for name, v in step.kwargs}
            known[step.name] = resolve(step.op)(*args, **kwargs)
        else:
            steps.append(step)
    return known, steps


def _known(leaf: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(leaf, Value):
        return known[leaf.name]
    return torch_value(leaf) if isinstance(leaf, TorchName) else leaf
