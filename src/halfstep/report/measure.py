"""Measure what quantizing did to each operator of a model, on data, one batch after the other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.engines import by_name
from halfstep.graph.engine import Engine, Runnable
from halfstep.graph.frozen import Frozen
from halfstep.graph.program import Program
from halfstep.graph.quantized import Execution, Quantized
from halfstep.graph.run import Plan
from halfstep.graph.trees import Branch
from halfstep.report.beside import Noted, Place, Side, beside, noting
from halfstep.report.layout import Layout, Operator
from halfstep.report.records import Layer, Split, Values
from halfstep.report.tracker import Tracker, execution_words
from halfstep.report.values import bias_overflow, weight_values

_WITH_BIAS = ("linear", "conv", "conv_transpose")


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
        found = run(self._quantized)
        try:
            return run(self._float), found
        finally:
            self._noted.calls.clear()

    @torch.no_grad()
    def layers(self) -> tuple[Layer, ...]:
        """What was measured so far, in the order of execution; what did not run comes last."""
        seen: set[int] = set()
        found: dict[str, Layer] = {}
        for place in dict.fromkeys((*self._order, *self._pairs)):
            tracker = self._trackers[place]
            if tracker.runs or not any(p[0] == place[0] for p in self._order):
                for layer in _layers(place[0], tracker, seen):
                    known = found.get(layer.value)
                    found[layer.value] = layer if known is None else _merged(known, layer)
        return tuple(replace(layer, depth=depth) for depth, layer in enumerate(found.values()))


def _placed(pairs: Sequence[Pair]) -> dict[Place, Pair]:
    found: dict[Place, Pair] = {}
    count: dict[str, int] = {}
    for pair in pairs:
        index = count.get(pair.path, 0)
        count[pair.path] = index + 1
        found[pair.path, index] = pair
    return found


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _layers(path: str, tracker: Tracker, seen: set[int]) -> Iterator[Layer]:
    """The layers of one program; ``seen`` are the parameters whose bytes are counted."""
    layout, known = tracker.layout, {}
    for name, activations in tracker.activations.items():
        values = activations.record()
        if values is not None:
            known[name] = replace(values, name=_joined(path, name))
    for operator in layout.operators:
        made = _layer(path, operator, tracker, known)
        before, after = _bytes(operator, tracker, seen)
        yield replace(made, before=before, after=after)


def _layer(path: str, operator: Operator, tracker: Tracker, known: dict[str, Values]) -> Layer:
    layout = tracker.layout
    reads = (layout.source(name) for name in operator.reads if name not in layout.flow.static)
    is_measured = operator.is_measured
    return Layer(
        value=_joined(path, operator.name),
        layer=_joined(path, operator.main.source) or path,
        op=operator.main.op.split(".")[1],
        runs=execution_words(operator, layout),
        why=operator.decision.reason,
        fused=tuple(step.op.split(".")[1] for step in operator.steps[1:]),
        operators=tuple(_joined(path, step.name) for step in operator.steps),
        reads=tuple(dict.fromkeys(_joined(path, name) for name in reads)),
        local=tracker.local.get(operator.name),
        accumulated=tracker.accumulated.get(operator.name),
        split=tracker.splitter.of(operator.name),
        weight=_weight(path, operator, tracker) if is_measured else None,
        bias_overflow=_overflow(operator, tracker) if is_measured else (),
        inputs=tuple(known[name] for name in operator.takes if is_measured and name in known),
        output=known.get(operator.name) if is_measured and operator.as_codes else None,
    )


def _weight(path: str, operator: Operator, tracker: Tracker) -> Values | None:
    """The first weight of an operator that is integers."""
    for name, w, q in tracker.weights.integers(operator):
        where = tracker.layout.program.parameters.get(name, name)
        return weight_values(_joined(path, where), w, q)
    return None


def _overflow(operator: Operator, tracker: Tracker) -> tuple[int, ...]:
    """The channels whose bias has no int32 in an ONNX file."""
    kind, args = operator.kind, operator.main.args
    if operator.execution is not Execution.INTEGER or kind is None or kind.name not in _WITH_BIAS:
        return ()
    edge = tracker.layout.edge(args[0].name)
    bias = args[2] if len(args) > 2 else None
    weights = tracker.weights.integers(operator)
    if edge is None or bias is None or not weights:
        return ()
    return bias_overflow(tracker.weights.value(bias.name, "integers"), edge.scale, weights[0][2])


def _bytes(operator: Operator, tracker: Tracker, seen: set[int]) -> tuple[int, int]:
    """The bytes, before and after, of the parameters that no layer before has counted."""
    roots = (root for name in operator.reads for root in tracker.layout.roots(name))
    before = after = 0
    for root in roots:
        w, q = tracker.weights.pair(root)
        if root in tracker.layout.program.parameters and id(q) not in seen:
            seen.add(id(q))
            before, after = before + _stored(w), after + _stored(q)
    return before, after


def _stored(x: Tensor) -> int:
    return int(x.nbytes)


def _merged(one: Layer, other: Layer) -> Layer:
    """A layer that was called in several ways, each with a program of its own."""
    if other.accumulated is None:
        return one
    if one.accumulated is None:
        return replace(other, before=one.before, after=one.after)
    local = one.local if other.local is None else other.local + (one.local or type(other.local)())
    split = one.split or other.split
    if one.split is not None and other.split is not None:
        sources = {k: v + other.split.sources[k] for k, v in one.split.sources.items()}
        split = Split(
            sources, one.split.cross + other.split.cross, one.split.total + other.split.total
        )
    return replace(one, local=local, accumulated=one.accumulated + other.accumulated, split=split)
