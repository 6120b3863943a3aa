"""From what was measured of a program to the records of its layers."""

from collections.abc import Iterator
from dataclasses import replace

from halfstep.graph.quantized import Execution
from halfstep.report.layout import Layout, Operator
from halfstep.report.records import Layer, Split, Values
from halfstep.report.tracker import Tracker
from halfstep.report.values import bias_overflow, weight_values

_WITH_BIAS = ("linear", "conv", "conv_transpose")


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def layers_of(path: str, tracker: Tracker, seen: set[int]) -> Iterator[Layer]:
    """The layers of one program of the module at ``path``, in the order of its steps.

    seen: the parameters whose bytes are counted, by id; those of this program are added.
    """
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
        runs=_words(operator, layout),
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
        if w.numel():
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
    if edge is None or bias is None or not weights or bias.name not in tracker.layout.flow.static:
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
            before, after = before + int(w.nbytes), after + int(q.nbytes)
    return before, after


def merged(one: Layer, other: Layer) -> Layer:
    """A layer that was called in several ways, each with a program of its own."""
    if other.accumulated is None:
        return one
    if one.accumulated is None:
        return replace(other, before=one.before, after=one.after)
    local, split = one.local or other.local, one.split or other.split
    if one.local is not None and other.local is not None:
        local = one.local + other.local
    if one.split is not None and other.split is not None:
        split = _sum(one.split, other.split)
    return replace(one, local=local, accumulated=one.accumulated + other.accumulated, split=split)


def _sum(one: Split, other: Split) -> Split:
    sources = {name: noise + other.sources[name] for name, noise in one.sources.items()}
    return Split(sources, one.cross + other.cross, one.total + other.total)


def _words(operator: Operator, layout: Layout) -> str:
    """How an operator runs, for people: the width of its activations, and that of other weights."""
    weight = operator.decision.weight
    own = 8 if weight is None else weight.dtype.bits
    if operator.execution is Execution.INTEGER:
        edges = (layout.edge(name) for name in operator.takes)
        bits = next((edge.spec.dtype.bits for edge in edges if edge is not None), 8)
        return f"int{bits}" if weight is None or own == bits else f"int{bits}, int{own} weights"
    if operator.execution is Execution.DYNAMIC:
        return f"dynamic int{own}"
    return "float" if operator.execution is Execution.FLOAT else f"int{own} weights"
