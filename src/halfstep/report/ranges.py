"""What is wrong with the ranges of what layers are given and make, and what may help."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from halfstep.observe import HistogramObserver, MinMaxObserver, PercentileObserver
from halfstep.report.records import Advice, Layer, Values
from halfstep.report.words import counted, number, percent
from halfstep.spec import Rule
from halfstep.spec.remedies import Equalize, Smooth

# The rule that the operator falls under which brings a value, for the module of that one alone.
RuleOf: TypeAlias = Callable[[str], Rule | None]

# A source that brings this share of a layer's error is a cause.
SHARE = 0.25
# One that brings this share is one of many that are alike.
_TOGETHER = 0.01
# Clipping this share of the values is more than the tail that percentile ranges cut on purpose.
SATURATED = 2e-3
# The range of all values over that of nearly all, to be cut; and to be left out of integers.
_TAIL, _HUGE, _NEARLY_ALL = 3.0, 8.0, 0.999
# From this spread on the median channel is left with two of 256 codes, whatever the output shows.
_LOST = 128.0
_CLIPPED, _RARE = "activation clipping", "outlier values"
_WHOLE = "Find its range by the smallest and the largest value"
_FURTHER = "Calibrate on data that reach as far as these: result.recalibrate(batches)"
_NORMS = ("layer_norm", "rms_norm", "native_layer_norm")
_SMOOTH = "Move the outliers into the weights that read them, by smoothing", (Smooth(),)
_EQUALIZE = "Share the range between neighbouring layers, by equalization", (Equalize(),)


class Ranges:
    """The activations of a model, and who makes and reads them."""

    def __init__(self, layers: Sequence[Layer], rule_of: RuleOf) -> None:
        self._layers, self._rule_of = layers, rule_of
        self._makers = {layer.value: layer for layer in layers}

    def of(self, layer: Layer) -> Iterator[Advice]:
        """Advice for the range of what a layer makes, and of what it is given in float."""
        for found in self._found_by(layer):
            yield from _range(layer, found)

    def _found_by(self, layer: Layer) -> Iterator["_Found"]:
        """The values whose range rules for a layer decide on."""
        own = self._rule_of(layer.own)
        last = self._rule_of(layer.value) or own
        if layer.output is not None and last is not None:
            yield _Found(layer.output, last, layer.layer)
        for values in layer.inputs:
            maker = self._makers.get(values.name)
            if own is not None and (maker is None or maker.output is None):
                name = layer.layer if maker is None else maker.layer
                yield _Found(values, own, name, side="input", is_made=maker is not None)

    def together(self) -> Iterator[Advice]:
        """Advice for all values at once, as these troubles run through a model.

        The data reach further than those that ranges were found on; or what is rare is cut off.
        """
        every = [(layer, found) for layer in self._layers for found in self._found_by(layer)]
        yield from _all([one for each in every for one in _clipped(*each, least=_TOGETHER)])
        yield from _all([one for _, found in every for one in list(_tail(found))[-1:]])

    def left_out(self) -> Iterator[Advice]:
        """Advice to keep in float all that reads a value which few codes are left for."""
        every = (each for layer in self._layers for each in (layer.output, *layer.inputs))
        for values in {each.name: each for each in every if each is not None}.values():
            most, reach = _most(values), _reach(values)
            readers = [one for one in self._layers if values.name in one.reads and one.local]
            found = [(one, rule) for one in readers if (rule := self._rule_of(one.own)) is not None]
            if not found or not most or reach < _HUGE * most:
                continue
            kept = {rule.match: Rule(rule.match, keep_float=True) for _, rule in found}
            names = ", ".join(dict.fromkeys(one.layer or one.op for one, _ in found))
            maker = self._makers.get(values.name)
            evidence = _far(values, "input" if maker is None else "output", reach / most)
            action = f"Keep what reads it in float: {names}"
            layer = found[0][0] if maker is None else maker
            yield Advice(layer.layer, _RARE, evidence, action, tuple(kept.values()))

    def outlier_channels(self) -> list[Advice]:
        """Advice for values with channels that outreach the others, the widest first."""
        found: list[tuple[float, Advice]] = []
        for layer in self._layers:
            for values in layer.inputs if layer.local is not None else ():
                maker = self._makers.get(values.name)
                if values.outliers and not _passes_on(maker):
                    found.append((values.channel_spread, _channels(layer, values, maker)))
        return [advice for _, advice in sorted(found, key=lambda pair: -pair[0])]


def share(layer: Layer, *sources: str) -> float:
    """The share of a layer's error that some sources bring."""
    if layer.split is None:
        return 0.0
    total = sum(layer.split.sources.values())
    return sum(layer.split.sources.get(name, 0.0) for name in sources) / total if total else 0.0


def span(values: Values) -> str:
    """What has codes, as an interval."""
    return f"[{number(values.grid_low)}, {number(values.grid_high)}]"


def lost(spread: float) -> float:
    """The dB that the median channel lacks of four codes; none where it has two or more.

    >>> lost(127.0), round(lost(1280.0), 1)
    (0.0, 26.0)
    """
    return 20 * math.log10(2 * spread / _LOST) if spread >= _LOST else 0.0


@dataclass(frozen=True)
class _Found:
    """A value whose range a rule decides on.

    layer: that of which it is said: what makes it, else what reads it.
    side: the sources of the error of the layer whose rule it is.
    """

    values: Values
    rule: Rule
    layer: str
    side: str = "output"
    is_made: bool = True

    @property
    def name(self) -> str:
        """What it is of the layer."""
        return "output" if self.is_made else "input"

    @property
    def is_whole(self) -> bool:
        """Whether its range is already that from the smallest to the largest value."""
        observer = self.rule.observer
        return observer is None or observer is MinMaxObserver or type(observer) is MinMaxObserver

    def advice(self, cause: str, evidence: str, action: str, observer: type) -> Advice:
        """To find the range in another way."""
        rules = (replace(self.rule, observer=observer),)
        return Advice(self.layer, cause, evidence, action, rules)


def _all(several: Sequence[Advice]) -> Iterator[Advice]:
    """The rules of several pieces of advice as one, if there are several."""
    rules = {rule.match: rule for one in several for rule in one.rules}
    if len(rules) > 1:
        evidence = f"{several[0].evidence}; {counted(len(rules) - 1, 'more value')} like that"
        yield replace(several[0], evidence=evidence, rules=tuple(rules.values()))


def _range(layer: Layer, found: _Found) -> Iterator[Advice]:
    yield from _clipped(layer, found, least=SHARE)
    if share(layer, f"{found.side} rounding") > SHARE:
        yield from _tail(found)


def _clipped(layer: Layer, found: _Found, *, least: float) -> Iterator[Advice]:
    """Advice for a range that leaves out too much, though it may be that of all data it saw.

    least: the share of the layer's error that clipping brings.
    """
    values, part = found.values, share(layer, f"{found.side} clipping")
    if values.saturated > SATURATED and part > least:
        evidence = (
            f"{percent(values.saturated)} of its {found.name} lies outside of {span(values)}, and "
            f"it reaches from {number(values.low)} to {number(values.high)}"
        )
        action = _FURTHER if found.is_whole else _WHOLE
        yield found.advice(_CLIPPED, evidence, action, MinMaxObserver)


def _tail(found: _Found) -> Iterator[Advice]:
    """Advice for a range that is far wider than nearly all of the values."""
    values, most, reach = found.values, _most(found.values), _reach(found.values)
    grid = max(abs(values.grid_low), abs(values.grid_high))
    if not most or max(reach, grid) < _TAIL * most:
        return
    if reach >= _TAIL * most:
        evidence = _far(values, found.name, reach / most)
        action = "Cut off what is rare: its range by the least squared error"
        yield found.advice(_RARE, evidence, action, HistogramObserver)
        action = "Cut off what is rare: its range by a percentile"
    else:
        of = f"{grid / most:.1f} times as far as {percent(_NEARLY_ALL)} of its values"
        evidence = f"its {found.name} has codes for {span(values)}, {of}"
        action = "Calibrate without what is rare, or cut it off: its range by a percentile"
    yield found.advice(_RARE, evidence, action, PercentileObserver)


def _far(values: Values, side: str, times: float) -> str:
    ends = f"reaches from {number(values.low)} to {number(values.high)}"
    return f"its {side} {ends}, {times:.1f} times as far as {percent(_NEARLY_ALL)} of its values"


def _channels(layer: Layer, values: Values, maker: Layer | None) -> Advice:
    spread = values.channel_spread
    evidence = (
        f"{len(values.outliers)} of {len(values.channel_low)} channels reach up to "
        f"{spread:.0f} times as far as the median one"
    )
    action, remedies = _SMOOTH if maker is not None and maker.op in _NORMS else _EQUALIZE
    source = layer if maker is None else maker
    said = (source.layer, "outlier channels", evidence, action)
    return Advice(*said, remedies=remedies, harm=lost(spread))


def _passes_on(maker: Layer | None) -> bool:
    """Whether a layer has its outliers from what it reads, as a pooling has."""
    return maker is not None and not maker.weight and any(one.outliers for one in maker.inputs)


def _reach(values: Values) -> float:
    return max(abs(values.low), abs(values.high))


def _most(values: Values) -> float:
    """How far nearly all values reach, from zero."""
    histogram = values.histogram
    if not histogram.counts or histogram.high <= histogram.low:
        return 0.0
    width = (histogram.high - histogram.low) / len(histogram.counts)
    ends = [histogram.low + place * width for place in range(len(histogram.counts) + 1)]
    reach = [max(abs(low), abs(high)) for low, high in itertools.pairwise(ends)]
    seen, total = 0, sum(histogram.counts)
    for far, some in sorted(zip(reach, histogram.counts, strict=True)):
        seen += some
        if seen >= _NEARLY_ALL * total:
            return far
    return 0.0
