"""Two models that run on the same batch, the float one step in step with the quantized one.

The quantized model runs first, in its own way, and notes what each of its captured modules is
given. Then the float model runs, and where it comes to such a module, both forms of it are walked
side by side: the float one on what it is given here, the quantized one on what was noted there. So
Python between modules, loops over what a model returns and several modules in one model are all
served, and what is noted is gone with the batch.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from halfstep.graph.engine import Runnable
from halfstep.graph.product import Forward, install, sharing
from halfstep.graph.program import Program
from halfstep.graph.run import Hook
from halfstep.graph.trees import Branch, mapped

# The path of a captured module, and which of its programs.
Place: TypeAlias = tuple[str, int]
# Runs a float program beside its other form, and returns what the float one does.
Side: TypeAlias = Callable[[Branch], Any]


@dataclass
class Noted:
    """What the captured modules of a model were given, in order, by path."""

    calls: dict[str, deque[tuple[int, Branch]]] = field(default_factory=dict)

    def add(self, place: Place, given: Branch) -> None:
        """Note one call; copied, since a model may change its tensors."""
        kept = mapped(given, lambda leaf: tree_map_only(Tensor, Tensor.clone, leaf))
        self.calls.setdefault(place[0], deque()).append((place[1], kept))

    def take(self, place: Place) -> Branch | None:
        """The arguments of the next call at a path, if it was of the same program."""
        waiting = self.calls.get(place[0])
        if not waiting:
            return None
        index, given = waiting.popleft()
        return given if index == place[1] else None


def noting(model: nn.Module, noted: Noted) -> tuple[nn.Module, dict[Place, Runnable]]:
    """A copy of a quantized model that notes what its captured modules are given.

    Also what runs each of their programs.
    """
    twin = sharing(model)
    found: dict[Place, Runnable] = {}
    for path, module in twin.named_modules():
        forward = vars(module).get("forward")
        if isinstance(forward, Forward):
            plans = dict(enumerate(forward.plans[False]))
            found |= {(path, index): plan for index, plan in plans.items()}
            _put_plans(forward, [_Noting(plan, (path, i), noted) for i, plan in plans.items()])
    return twin, found


def beside(
    model: nn.Module, programs: Mapping[str, Sequence[Program]], sides: Mapping[Place, Side]
) -> nn.Module:
    """A copy of a float model whose modules at these paths run ``sides`` in place of programs."""
    twin = sharing(model)
    for path, several in programs.items():
        install(twin, {path: several}, lenient=True)
        forward = vars(twin.get_submodule(path))["forward"]
        plans = enumerate(forward.plans[False])
        _put_plans(forward, [_Beside(plan, sides[path, index]) for index, plan in plans])
    return twin


def _put_plans(forward: Forward, plans: Sequence[Runnable]) -> None:
    vars(forward)["plans"] = {mode: list(plans) for mode in (True, False)}


@dataclass(frozen=True)
class _Around:
    """A plan that does something of its own where another would run."""

    inner: Runnable

    @property
    def program(self) -> Program:
        """The inner one's."""
        return self.inner.program

    def takes(self, given: Branch) -> bool:
        """Whether it is for arguments of this kind."""
        return self.inner.takes(given)


@dataclass(frozen=True)
class _Noting(_Around):
    """A plan that notes what it is given."""

    place: Place
    noted: Noted

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """Note the arguments, and run."""
        self.noted.add(self.place, given)
        return self.inner.run(module, given, hook)


@dataclass(frozen=True)
class _Beside(_Around):
    """A plan that runs a float program beside its other form."""

    side: Side

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the float program returns."""
        return self.side(given)
