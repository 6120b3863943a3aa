"""Float programs whose values are observed while they run: the model while it is calibrated."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.flows.parts import Part, joined
from halfstep.flows.quantizers import made_observer
from halfstep.graph.edges import Edge
from halfstep.graph.export import arguments
from halfstep.graph.place import Placement
from halfstep.graph.program import Step
from halfstep.graph.run import Plan, find
from halfstep.graph.trees import Branch, leaves, mapped, match
from halfstep.observe import MinMaxObserver, Observer
from halfstep.spec import QSpec


class Watch:
    """One program: its observers by value, the shapes of its values, and what it was given first.

    room: as many bytes of what it was given are kept, in ``kept``.

    Raises ``ArgumentTypeError`` for a rule whose observer is none.
    """

    def __init__(self, part: Part, room: int = 0) -> None:
        self.part = part
        self.room = room
        self.kept: list[Branch] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.example: Branch | None = None
        self.runs = 0
        self._layers = {step.name: joined(part.path, step.source) for step in part.program.steps}
        placement = part.placement
        self.observers = {
            name: self._observer(name, spec, placement.observers.get(name))
            for name, spec in placement.observe.items()
            if name not in placement.shared
        }

    def layer(self, value: str) -> str:
        """What a value is, for people: the layer that makes it, or which input it is."""
        if value not in self._layers:
            return f"{self.part.path or 'the model'}, its input {value}"
        return self._layers[value] or value

    def _observer(self, name: str, spec: QSpec, wanted: Any) -> Observer:
        made = made_observer(wanted or MinMaxObserver, spec, f"observer= of {self.layer(name)}")
        made.name = self.layer(name)
        return made

    @cached_property
    def plan(self) -> Plan:
        """The program made ready to run."""
        return Plan(self.part.program)

    def run(self, module: nn.Module, given: Branch) -> Any:
        """What the program returns, its values shown to the observers."""
        if self.example is None:
            self.example = given
        if self.observers and not any(one.count for one in self.observers.values()):
            self.runs, self.kept = 0, []  # they have been reset
        self.runs += 1
        self._keep(given)
        for value, tensor in match(self.part.program.arguments, given):
            self.see(value.name, tensor)
        return self.plan.run(module, given, self.hook)

    def _keep(self, given: Branch) -> None:
        """Copy what the program was given, since a model may change its input."""
        held = sum(_bytes(each) for each in self.kept)
        if self.room > held:
            self.kept.append(mapped(given, _copied))

    def hook(self, step: Step, value: Any) -> Any:
        """See what a step brings."""
        self.see(step.name, value)
        return value

    def see(self, name: str, value: Any) -> None:
        """Note a value; its shape and type the first time."""
        if not isinstance(value, Tensor):
            return
        if name not in self.shapes:
            self.shapes[name] = tuple(value.shape)
            if value.is_floating_point() and value.dtype != torch.float32:
                self.dtypes[name] = str(value.dtype).removeprefix("torch.")
        observer = self.observers.get(name)
        if observer is not None:
            observer(value)

    def edges(self) -> dict[str, Edge]:
        """The formats of the observed values, and of those that share one.

        Raises ``ArgumentError`` that names a layer which no data has reached, and
        ``NonFiniteError`` for ranges that are not finite.
        """
        made = {name: self._edge(name, observer) for name, observer in self.observers.items()}
        return with_shared(made, self.part.placement)

    def _edge(self, name: str, observer: Observer) -> Edge:
        if not observer.has_range:
            raise ArgumentError(
                f"no data has reached {self.layer(name)} while calibrating: give batches that run "
                "it, or keep it in float with hs.Rule(match, keep_float=True)"
            )
        scale, zero_point = observer.qparams()
        return Edge(observer.spec, float(scale), int(zero_point))

    def dead(self) -> list[str]:
        """What is to be said of values that were always zero."""
        names = [name for name, one in self.observers.items() if one.dead_channels()]
        return [f"{self.layer(name)} was zero in all data: its scale is 1" for name in names]

    def shapes_in(self, module: nn.Module) -> dict[str, tuple[int, ...]]:
        """The shapes of all values, parameters and constants among them."""
        program = self.part.program
        known = {name: find(module, path) for name, path in program.parameters.items()}
        known |= program.constants
        return {name: tuple(value.shape) for name, value in known.items()} | self.shapes

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "plan"}


class Observed:
    """The forward of a module that is calibrated: an attribute of the object, not of its class."""

    def __init__(self, module: nn.Module, parts: list[Part], room: int = 0) -> None:
        self.module = module
        self.watches = [Watch(part, room) for part in parts]
        self.__signature__ = inspect.signature(module.forward)

    @property
    def observers(self) -> dict[str, Observer]:
        """All observers, by the names of their values."""
        several = len(self.watches) > 1
        return {
            f"{name}@{place}" if several else name: observer
            for place, watch in enumerate(self.watches)
            for name, observer in watch.observers.items()
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for this kind of arguments."""
        given = arguments(self.__signature__, args, kwargs)
        fitting = [watch for watch in self.watches[:-1] if watch.plan.takes(given)]
        return (*fitting, self.watches[-1])[0].run(self.module, given)


def with_shared(edges: Mapping[str, Edge], placement: Placement) -> dict[str, Edge]:
    """The formats of observed values, and of those that have the scale of another."""
    made, shared = dict(edges), placement.shared
    for name in shared:
        root = name
        while root in shared:
            root = shared[root]
        if root in made:
            made[name] = made[root]
    return made


def observe(model: nn.Module, parts: Sequence[Part], room: int = 0) -> list[Watch]:
    """Let the modules of these parts run their programs, with observers; return what watches."""
    by_path: dict[str, list[Part]] = {}
    for part in parts:
        by_path.setdefault(part.path, []).append(part)
    for path, several in by_path.items():
        module = model.get_submodule(path)
        vars(module)["forward"] = Observed(module, several, room)
    return [watch for several in watches_in(model).values() for watch in several]


def watches_in(model: nn.Module) -> dict[str, list[Watch]]:
    """The watched programs of a model, by the path of their module."""
    found = {name: vars(module).get("forward") for name, module in model.named_modules()}
    return {name: each.watches for name, each in found.items() if isinstance(each, Observed)}


def kept_by(watches: Iterable[Watch]) -> dict[str, list[list[Branch]]]:
    """What programs were given, as far as it was kept, by the path of their module."""
    found: dict[str, list[list[Branch]]] = {}
    for watch in watches:
        found.setdefault(watch.part.path, []).append(watch.kept)
    return found


def _bytes(given: Branch) -> int:
    return sum(leaf.nbytes for leaf in leaves(given) if isinstance(leaf, Tensor))


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
