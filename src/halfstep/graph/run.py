"""Running a program: one flat loop over functions and slots."""

from collections.abc import Callable, Collection, Generator, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, HalfstepError
from halfstep.graph import sizes
from halfstep.graph.operators import GRAD_MODE, resolve, torch_value
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.trees import Branch, Value, join, leaves, mapped, match

Hook: TypeAlias = Callable[[Step, Any], Any]
# Each step with what it brings; takes what to use in its place, and ends with what is returned.
Walk: TypeAlias = Generator[tuple[Step, Any], Any, Any]
_Reader: TypeAlias = Callable[[list[Any]], Any]


class Plan:
    """A program made ready to run: operators looked up, values and constants in slots of a list.

    Holds nothing of a model, so that one plan serves all copies of it, in any number of threads.
    """

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        owning: Collection[str] = (),
    ) -> None:
        """``functions`` run the steps of those names in place of their operators.

        ``owning`` steps may write over their last argument, where nobody looks at values.
        """
        run = {step.name: resolve(step.op) for step in program.steps} | dict(functions or {})
        self.program = program
        self._slots: dict[str, int] = {}
        self._initial: list[Any] = []
        for name, tensor in program.constants.items():
            self._initial[self._slot(name)] = tensor
        self._owners: dict[str, list[tuple[int, str]]] = {}
        for value, path in program.parameters.items():
            owner, _, name = path.rpartition(".")
            self._owners.setdefault(owner, []).append((self._slot(value), name))
        for given in program.inputs:
            self._slot(given.value.name)
        self._dtypes = [torch_value(TorchName("dtype", g.dtype)) for g in program.inputs]
        self._calls = [
            (step, run[step.name], *self._readers(step), self._slot(step.name), dead)
            for step, names in zip(program.steps, program.last_use, strict=True)
            for dead in [[self._slot(name) for name in names]]
        ]
        self._quick = [
            (step, getattr(f, "over", f) if step.name in owning else f, args, kwargs, slot, dead)
            for step, f, args, kwargs, slot, dead in self._calls
        ]
        self._outputs = mapped(program.outputs, self._output)
        self._changes_grad_mode = any(step.op == GRAD_MODE for step in program.steps)
        self._checked: set[tuple[torch.Size, ...]] = set()

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            self._slots[name] = self._add(None)
        return self._slots[name]

    def _add(self, value: Any) -> int:
        self._initial.append(value)
        return len(self._initial) - 1

    def _output(self, leaf: Any) -> Any:
        return self._slot(leaf.name) if isinstance(leaf, Value) else self._add(leaf)

    def _readers(self, step: Step) -> tuple[_Reader, _Reader | None]:
        """What takes a step's arguments out of the slots: by place, and by name if any are."""
        by_place = self._tuple_reader(step.args)
        if not step.kwargs:
            return by_place, None
        names, values = zip(*step.kwargs, strict=True)
        read = self._tuple_reader(values)
        return by_place, lambda slots: dict(zip(names, read(slots), strict=True))

    def _tuple_reader(self, values: tuple[Any, ...]) -> _Reader:
        if len(values) > 1 and not any(map(_is_built, values)):
            return itemgetter(*(self._place(value) for value in values))
        parts = [
            self._tuple_reader(value) if _is_built(value) else itemgetter(self._place(value))
            for value in values
        ]
        return lambda slots: tuple([part(slots) for part in parts])

    def _place(self, value: Any) -> int:
        if isinstance(value, Value):
            return self._slot(value.name)
        return self._add(mapped(value, _at_run_time))

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the program returns for these arguments, over the parameters of ``module``.

        ``hook`` sees every step with what it brought, and returns what to use in its place.

        Raises ``ArgumentError`` or ``ArgumentTypeError`` for arguments that it was not made for.
        """
        slots = self._filled(module, given)
        if not self._changes_grad_mode:
            self._loop(slots, hook)
        else:
            with torch.set_grad_enabled(torch.is_grad_enabled()):  # restored if a step fails
                self._loop(slots, hook)
        return join(mapped(self._outputs, slots.__getitem__))

    def _filled(self, module: nn.Module, given: Branch) -> list[Any]:
        """The slots before the first step."""
        slots = self._initial.copy()
        self._put_inputs(slots, given)
        for owner, places in self._owners.items():
            tensors = _tensors(module, owner)
            for slot, name in places:
                slots[slot] = tensors(name)
        return slots

    def walk(self, module: nn.Module, given: Branch) -> Walk:
        """As ``run``, one step at a time: several programs can be walked side by side.

        Each step comes with what it brings; what is sent back is used in its place. The gradient
        mode stays as it is, which the walks share.
        """
        slots = self._filled(module, given)
        for step, function, args, kwargs, slot, dead in self._calls:
            if step.op == GRAD_MODE:
                slots[slot] = yield step, torch.is_grad_enabled()
            else:  # held by no name, so that a value is gone when nobody needs it
                options = {} if kwargs is None else kwargs(slots)
                slots[slot] = yield step, function(*args(slots), **options)
            for place in dead:
                slots[place] = None
        return join(mapped(self._outputs, slots.__getitem__))

    def _loop(self, slots: list[Any], hook: Hook | None) -> None:
        calls = self._quick if hook is None else self._calls
        for step, function, args, kwargs, slot, dead in calls:
            if kwargs is None:
                value = function(*args(slots))
            else:
                value = function(*args(slots), **kwargs(slots))
            slots[slot] = value if hook is None else hook(step, value)
            for place in dead:
                slots[place] = None

    def takes(self, given: Branch) -> bool:
        """Whether the program is for arguments of this kind."""
        try:
            self._tensors(given)
        except HalfstepError:
            return False
        return True

    def _tensors(self, given: Branch) -> list[Tensor]:
        """The tensors among the arguments, in the order of the inputs."""
        found = dict(match(self.program.arguments, given))
        tensors = [found[expected.value] for expected in self.program.inputs]
        for expected, dtype, tensor in zip(self.program.inputs, self._dtypes, tensors, strict=True):
            ndim = tensor.ndim if expected.ndim is None else expected.ndim
            if tensor.dtype != dtype or tensor.ndim != ndim:
                raise ArgumentTypeError(
                    f"{expected.value.name} is {tensor.dtype} of {tensor.ndim} dimensions: the "
                    f"model was captured with {dtype} of {ndim}. Convert it, or capture "
                    "the model with such an example"
                )
        return tensors

    def _put_inputs(self, slots: list[Any], given: Branch) -> None:
        for expected, tensor in zip(self.program.inputs, self.checked(given), strict=True):
            slots[self._slots[expected.value.name]] = tensor

    def checked(self, given: Branch) -> list[Tensor]:
        """The tensors among the arguments, in the order of the inputs.

        Raises ``ArgumentError`` or ``ArgumentTypeError`` for arguments that it was not made for.
        """
        tensors = self._tensors(given)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._checked:
            names = [expected.value.name for expected in self.program.inputs]
            sizes.check(self.program.conditions, shapes, names)
            self._checked.add(shapes)
        return tensors


def find(module: nn.Module, path: str) -> Tensor:
    """The parameter, buffer or tensor attribute at a path.

    Raises ``ArgumentError`` when the module has none.
    """
    owner, _, name = path.rpartition(".")
    return _tensors(module, owner)(name)


def _tensors(module: nn.Module, path: str) -> Callable[[str], Tensor]:
    """What finds the tensors of the module at a path by their names."""
    owner: Any = module
    for part in path.split(".") if path else ():
        owner = owner._modules.get(part)
        if owner is None:
            raise ArgumentError(f"{type(module).__name__} has no module {path}")
    parameters, buffers = owner._parameters, owner._buffers

    def find_tensor(name: str) -> Tensor:
        found = parameters.get(name)
        if found is None:
            found = buffers[name] if name in buffers else vars(owner).get(name)
        if not isinstance(found, Tensor):
            raise ArgumentError(
                f"{type(owner).__name__} has no tensor {name}, which its program reads"
            )
        return found

    return find_tensor


def _is_built(value: Any) -> bool:
    """Whether an argument is a tuple that has to be made anew in each run."""
    return isinstance(value, tuple) and any(isinstance(leaf, Value) for leaf in leaves(value))


def _at_run_time(value: Any) -> Any:
    return torch_value(value) if isinstance(value, TorchName) else value
