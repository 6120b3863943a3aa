"""Measure what quantizing did to each operator of a model, on data, one batch after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from halfstep.engines import by_name
from halfstep.graph.engine import Engine, Runnable
from halfstep.graph.frozen import Frozen
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Plan
from halfstep.graph.trees import Branch
from halfstep.report.beside import Noted, Place, Side, beside, noting
from halfstep.report.layers import layers_of, merged
from halfstep.report.layout import Layout
from halfstep.report.records import Layer
from halfstep.report.tracker import Tracker


@dataclass(frozen=True)
class Pair:
    """One captured program of the module at ``path``.

    program: in float. part: as it was quantized, or as it is where nothing was.
    runs: whether the module runs it; where it only has integer weights, no error is measured.
    """

    path: str
    program: Program
    part: Program | Quantized
    runs: bool = True

    @property
    def quantized(self) -> Quantized:
        """The part, with no decision for any step where nothing was quantized."""
        return self.part if isinstance(self.part, Quantized) else Quantized(self.part)


class Measuring:
    """A float model and its quantized form, measured side by side.

    models: the float one, over whose modules the programs of ``pairs`` run, and the quantized one.
        Both stay as they are.
    pairs: for each path in the order in which the quantized model has its programs.
    engine: what runs the quantized model. One that shows no steps is measured by the torch engine.

    >>> import halfstep as hs, torch
    >>> from halfstep.report.measure import Measuring, Pair
    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> x = torch.randn(64, 8)
    >>> result = hs.ptq.quantize(net, x)
    >>> made = result.preparation
    >>> pairs = [Pair("", made.parts[0].program, result.parts[""][0])]
    >>> measuring = Measuring((made.work, result.model), pairs, made.order.engine)
    >>> y, found = measuring.run(lambda model: model(x))
    >>> [(layer.op, layer.runs, layer.local.sqnr > 30) for layer in measuring.layers()]
    [('linear', 'int8', True), ('linear', 'int8', True)]
    """

    def __init__(
        self, models: tuple[nn.Module, nn.Module], pairs: Sequence[Pair], engine: Engine
    ) -> None:
        self._noted = Noted()
        self._quantized, plans = noting(models[1], self._noted)
        self._pairs = _placed(pairs)
        self._engine, self._models = engine, models
        self._trackers = {
            place: self._tracker(pair, plans.get(place)) for place, pair in self._pairs.items()
        }
        self._order: dict[Place, None] = {}
        programs: dict[str, list[Program]] = {}
        for pair in filter(lambda pair: pair.runs, pairs):
            programs.setdefault(pair.path, []).append(pair.program)
        sides = {place: self._side(place) for place in self._pairs}
        self._float = beside(models[0], programs, sides)

    def _tracker(self, pair: Pair, plan: Runnable | None) -> Tracker:
        """What measures a program; ``plan`` runs it, and shows its steps if it is one of ours."""
        # Of the copy that runs first, so that weights are packed once.
        models = self._models[0], self._quantized
        modules = tuple(model.get_submodule(pair.path) for model in models)
        part, engine = pair.quantized, self._engine
        is_plain = not isinstance(pair.part, Quantized)
        if not isinstance(plan, Frozen | Plan):
            engine = by_name("torch")
            plan = engine.plan(part, modules[1])
        walkable = plan if isinstance(plan, Frozen | Plan) else Plan(part.program)
        layout = Layout(pair.program, part, walkable.program, engine.capabilities)
        floats = Plan(pair.program) if is_plain else Frozen(pair.program)
        return Tracker(layout, (floats, walkable), (modules[0], modules[1]), is_plain=is_plain)

    def _side(self, place: Place) -> Side:
        def run(given: Branch) -> Any:
            self._order.setdefault(place)
            return self._trackers[place].run(given, self._noted.take(place))

        return run

    def run(self, run: Callable[[nn.Module], Any]) -> tuple[Any, Any]:
        """Measure one batch: what the float and what the quantized model return.

        run: runs the model that it is given on the batch, without gradients.
        """
        # Torch's fused attention reads the weights of layers and calls none of them.
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            found = run(self._quantized)
            return run(self._float), found
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            self._noted.calls.clear()

    @torch.no_grad()
    def layers(self) -> tuple[Layer, ...]:
        """What was measured so far, in the order of execution; what did not run comes last."""
        seen: set[int] = set()
        found: dict[str, Layer] = {}
        for place in dict.fromkeys((*self._order, *self._pairs)):
            tracker = self._trackers[place]
            if tracker.runs or not any(p[0] == place[0] for p in self._order):
                for layer in layers_of(place[0], tracker, seen):
                    known = found.get(layer.value)
                    found[layer.value] = layer if known is None else merged(known, layer)
        return tuple(replace(layer, depth=depth) for depth, layer in enumerate(found.values()))


def _placed(pairs: Sequence[Pair]) -> dict[Place, Pair]:
    found: dict[Place, Pair] = {}
    count: dict[str, int] = {}
    for pair in pairs:
        index = count.get(pair.path, 0)
        count[pair.path] = index + 1
        found[pair.path, index] = pair
    return found
