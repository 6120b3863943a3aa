"""Many versions of one program on the same data: what they have in common runs once."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from halfstep.graph.frozen import Bind, ready
from halfstep.graph.kernels import Kernels
from halfstep.graph.operators import GRAD_MODE, resolve, torch_value
from halfstep.graph.program import Program, TorchName
from halfstep.graph.trees import Branch, Value, join, leaves, mapped, match


class Version:
    """A program over its tensors, which runs from any of its steps on.

    tensors: what its parameters are, by the names of their values.
    bind: chooses its kernels, which ``kernels`` shares with other versions.
    """

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        kernels: Kernels,
        bind: Bind | None = None,
    ) -> None:
        sharing = None if bind is None else kernels.sharing(bind)
        self.program, functions = ready(program, tensors, sharing)
        self.steps = self.program.steps
        self.functions = [functions.get(one.name) or resolve(one.op) for one in self.steps]
        self.known = {
            name: kernels.canonical(value) if isinstance(value, Tensor) else value
            for name, value in self.program.constants.items()
        }
        self._dying = self.program.last_use

    def is_same(self, other: "Version", place: int) -> bool:
        """Whether both do the same in the step at this place."""
        if max(place + 1, 1) > min(len(self.steps), len(other.steps)):
            return False
        step, its = self.steps[place], other.steps[place]
        if self.functions[place] is not other.functions[place] or step.name != its.name:
            return False
        if step.args is not its.args and step != its:  # kernels hold tensors: the same, or not
            return False
        return all(self.known.get(v.name) is other.known.get(v.name) for v in step.reads())

    def needs(self, start: int) -> set[str]:
        """The values that the steps from this place on read, and do not bring themselves."""
        rest = self.steps[start:]
        read = {value.name for step in rest for value in step.reads()}
        read |= {leaf.name for leaf in leaves(self.program.outputs) if isinstance(leaf, Value)}
        return read - {step.name for step in rest} - self.known.keys()

    def take(self, place: int, values: dict[str, Any]) -> None:
        """Run the step at this place, and put what it brings among the values."""
        step = self.steps[place]
        if step.op == GRAD_MODE:  # no gradients here
            values[step.name] = None
            return
        args, kwargs = (
            mapped(given, lambda leaf: self._leaf(leaf, values))
            for given in (step.args, step.kwargs)
        )
        values[step.name] = self.functions[place](*args, **dict(kwargs))

    def finish(self, start: int, values: dict[str, Any]) -> Any:
        """What the program returns, from the values that the steps from this place on need."""
        for place in range(start, len(self.steps)):
            self.take(place, values)
            for name in self._dying[place]:
                values.pop(name, None)
        return self.output(values)

    def output(self, values: dict[str, Any]) -> Any:
        """What the program returns, of its values."""
        return join(mapped(self.program.outputs, lambda leaf: self._leaf(leaf, values)))

    def _leaf(self, leaf: Any, values: Mapping[str, Any]) -> Any:
        if isinstance(leaf, Value):
            return values[leaf.name] if leaf.name in values else self.known[leaf.name]
        return torch_value(leaf) if isinstance(leaf, TorchName) else leaf


class Suffixes:
    """Versions of a program, of which each runs only where it differs from the first.

    The first is walked step by step; where another one begins to differ, what is left of that one
    runs on the values that are there. Only values that somebody still needs are held.

    >>> import inspect, torch
    >>> from halfstep.graph.export import arguments, export
    >>> from halfstep.graph.kernels import Kernels
    >>> from halfstep.graph.suffix import Suffixes, Version
    >>> model, x, kernels = torch.nn.Linear(2, 1), torch.ones(3, 2), Kernels()
    >>> program = export(model, (x,))
    >>> versions = [
    ...     Version(program, {"weight": model.weight * factor, "bias": model.bias}, kernels)
    ...     for factor in (1, 2)
    ... ]
    >>> given = arguments(inspect.signature(model.forward), (x,), {})
    >>> found = {}
    >>> y = Suffixes(versions[0], versions[1:]).run(given, found.__setitem__)
    >>> torch.equal(y, model(x)), torch.allclose(found[0] - y, x @ model.weight.T)
    (True, True)
    """

    def __init__(self, base: Version, others: Sequence[Version]) -> None:
        self.base, self.others = base, tuple(others)
        self.cuts = [self._shared(other) for other in self.others]
        self._needs = [other.needs(cut) for other, cut in zip(self.others, self.cuts, strict=True)]

    def _shared(self, other: Version) -> int:
        """The number of steps at the front that are the same."""
        places = range(len(self.base.steps))
        return sum(1 for _ in takewhile(lambda place: self.base.is_same(other, place), places))

    @cached_property
    def _branches(self) -> dict[int, list[int]]:
        """The versions that leave before each step of the base."""
        found: dict[int, list[int]] = defaultdict(list)
        for place, cut in enumerate(self.cuts):
            found[cut].append(place)
        return found

    @cached_property
    def _dying(self) -> list[list[str]]:
        """The values that nobody needs after each step of the base."""
        last = {
            name: place for place, names in enumerate(self.base.program.last_use) for name in names
        }
        for cut, needed in zip(self.cuts, self._needs, strict=True):
            last |= {name: max(last[name], cut - 1) for name in needed & last.keys()}
        found: list[list[str]] = [[] for _ in self.base.steps]
        for name, place in last.items():
            found[place].append(name)
        return found

    def run(self, given: Branch, see: Callable[[int, Any], None]) -> Any:
        """What the first version returns; ``see(place, output)`` takes what the others do.

        Each output is let go when it was seen, so that those of all are never held at once.
        """
        pairs = match(self.base.program.arguments, given)
        values: dict[str, Any] = {value.name: tensor for value, tensor in pairs}
        with torch.no_grad():
            self._leave(0, values, see)
            for place, names in enumerate(self._dying):
                self.base.take(place, values)
                self._leave(place + 1, values, see)
                for name in names:
                    values.pop(name, None)
            return self.base.output(values)

    def _leave(self, cut: int, values: dict[str, Any], see: Callable[[int, Any], None]) -> None:
        """Run what is left of the versions that differ from here on."""
        for place in self._branches.get(cut, ()):
            own = {name: values[name] for name in self._needs[place]}
            see(place, self.others[place].finish(cut, own))
