"""What the numbers of a layer say is wrong with it, and what may help; what does is measured later.

Each cause has one function, from a layer to pieces of advice: alternatives for one trouble.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from halfstep.observe import HistogramObserver, MinMaxObserver, PercentileObserver
from halfstep.report.records import Advice, Layer, Values
from halfstep.report.words import number, percent
from halfstep.spec import PerChannel, QSpec, Rule, int8
from halfstep.spec.remedies import Equalize, Smooth

# The rule that the operator falls under which brings a value, for the module of that one alone.
RuleOf: TypeAlias = Callable[[str], Rule | None]

# Below this a layer's own error, in dB, or that at its end, is worth a look.
_LOCAL, _GATHERED = 30.0, 20.0
# A source that brings this share of a layer's error is a cause.
_SHARE = 0.25
# Clipping this share of the values is more than the tail that percentile ranges cut on purpose.
_SATURATED = 2e-3
# The range of all values over that of nearly all.
_TAIL, _NEARLY_ALL = 3.0, 0.999
_OUTLIER = 8.0
_NORMS = ("layer_norm", "rms_norm", "native_layer_norm")
# A trouble of files, which no measurement on this engine shows: below all that one does.
BIAS_OVERFLOW, _FILE_HARM = "bias overflow", 0.5
_ROWS = QSpec(int8, PerChannel(0), symmetric=True)


def candidates(layers: Iterable[Layer], rule_of: RuleOf) -> list[Advice]:
    """Everything that may be wrong and may help, of the layers that are worth a look.

    ``harm`` is not known yet, but of a bias that no ONNX file can hold.
    """
    every = list(layers)
    makers = {layer.value: layer for layer in every}
    found: list[Advice] = []
    for layer in every:
        # What is fused to an operator has a module, and so a rule, of its own.
        own, last = rule_of((layer.operators or (layer.value,))[0]), rule_of(layer.value)
        if layer.local is None or own is None:
            continue
        if _is_worth(layer):
            found += [*_activations(layer, makers, own, last or own), *_weights(layer, own)]
            found.append(_kept(layer, own))
    return [*found, *_biases(every)]


def _is_worth(layer: Layer) -> bool:
    local, gathered = layer.local, layer.accumulated
    if local is None or gathered is None or layer.split is None or not layer.split.total:
        return False
    is_odd = any(each.outliers or each.saturated > _SATURATED for each in _tensors(layer))
    return local.sqnr < _LOCAL or gathered.sqnr < _GATHERED or is_odd


def _tensors(layer: Layer) -> Iterator[Values]:
    yield from layer.inputs
    yield from (each for each in (layer.output, layer.weight) if each is not None)


def share(layer: Layer, *sources: str) -> float:
    """The share of a layer's error that some sources bring."""
    if layer.split is None:
        return 0.0
    total = sum(layer.split.sources.values())
    return sum(layer.split.sources.get(name, 0.0) for name in sources) / total if total else 0.0


# --- What a layer is given and makes --------------------------------------------------------------


def _activations(
    layer: Layer, makers: dict[str, Layer], rule: Rule, last: Rule
) -> Iterator[Advice]:
    if layer.output is not None:
        yield from _range(layer, layer.output, last, "output")
    for values in layer.inputs:
        maker = makers.get(values.name)
        if maker is None or maker.output is None:  # made in float, or given to the model
            yield from _range(layer, values, rule, "input")
        if values.outliers:
            yield _outlier_channels(layer, values, maker)


def _range(layer: Layer, values: Values, rule: Rule, side: str) -> Iterator[Advice]:
    part = share(layer, f"{side} clipping")
    if values.saturated > _SATURATED and part > _SHARE:
        evidence = (
            f"{percent(values.saturated)} of its {side} lies outside of {_span(values)}, and it "
            f"reaches from {number(values.low)} to {number(values.high)}"
        )
        action = "Find its range by the smallest and the largest value"
        yield _ranged(layer, rule, ("activation clipping", evidence, action), MinMaxObserver)
    tail = _tail(values)
    if tail >= _TAIL and share(layer, f"{side} rounding") > _SHARE:
        evidence = (
            f"its {side} reaches from {number(values.low)} to {number(values.high)}, "
            f"{tail:.1f} times as far as {percent(_NEARLY_ALL)} of its values"
        )
        action = "Cut off what is rare: its range by the least squared error"
        yield _ranged(layer, rule, ("outlier values", evidence, action), HistogramObserver)
        action = "Cut off what is rare: its range by a percentile"
        yield _ranged(layer, rule, ("outlier values", evidence, action), PercentileObserver)


def _ranged(layer: Layer, rule: Rule, said: tuple[str, str, str], observer: type) -> Advice:
    return Advice(layer.layer, *said, rules=(replace(rule, observer=observer),))


def _outlier_channels(layer: Layer, values: Values, maker: Layer | None) -> Advice:
    source = layer if maker is None else maker
    evidence = (
        f"{len(values.outliers)} of {len(values.channel_low)} channels reach up to "
        f"{values.channel_spread:.0f} times as far as the median one"
    )
    is_normed = maker is not None and maker.op in _NORMS
    remedy = Smooth() if is_normed else Equalize()
    action = (
        "Move the outliers into the weights that read them, by smoothing"
        if is_normed
        else "Share the range between neighbouring layers, by equalization"
    )
    return Advice(source.layer, "outlier channels", evidence, action, remedies=(remedy,))


def _span(values: Values) -> str:
    return f"[{number(values.grid_low)}, {number(values.grid_high)}]"


def _tail(values: Values) -> float:
    """The range of all values over that of nearly all of them, both from zero."""
    histogram = values.histogram
    count = len(histogram.counts)
    total = sum(histogram.counts)
    if not total or histogram.high <= histogram.low:
        return 1.0
    width = (histogram.high - histogram.low) / count
    reach = [
        (max(abs(histogram.low + place * width), abs(histogram.low + (place + 1) * width)), some)
        for place, some in enumerate(histogram.counts)
    ]
    seen = 0
    for far, some in sorted(reach):
        seen += some
        if seen >= _NEARLY_ALL * total:
            return max(abs(values.low), abs(values.high)) / far if far else 1.0
    return 1.0


# --- Weights, biases, and what always helps -------------------------------------------------------


def _weights(layer: Layer, rule: Rule) -> Iterator[Advice]:
    weight = layer.weight
    if weight is None or share(layer, "weight rounding", "weight clipping") < _SHARE:
        return
    spread = (
        f"channel {weight.outliers[0]} of {len(weight.channel_low)} reaches "
        f"{weight.channel_spread:.0f} times as far as the median one"
        if weight.outliers
        else f"{percent(share(layer, 'weight rounding'))} of its error is rounding of the weight"
    )
    if len(weight.scale) == 1 and len(weight.channel_low) > 1:
        cause = "outlier weight channel" if weight.outliers else "one scale for all weights"
        action = "Give each output channel a scale of its own"
        yield Advice(layer.layer, cause, spread, action, (replace(rule, weight=_ROWS),))
    elif rule.weight is not None and _bits(rule.weight) < 8:
        action = "Use 8 bits for its weight"
        cause = f"weights of {_bits(rule.weight)} bits"
        yield Advice(layer.layer, cause, spread, action, (replace(rule, weight=_ROWS),))
    if weight.saturated > _SATURATED and share(layer, "weight clipping") > _SHARE:
        evidence = f"{percent(weight.saturated)} of its weights lie outside of {_span(weight)}"
        action = "Find the range of its weight by the smallest and the largest value"
        made = replace(rule, weight_observer=MinMaxObserver)
        yield Advice(layer.layer, "weight clipping", evidence, action, (made,))


def _bits(weight: object) -> int:
    spec = weight if isinstance(weight, QSpec) else None
    return 8 if spec is None else spec.dtype.bits


def _biases(layers: Iterable[Layer]) -> Iterator[Advice]:
    """One piece of advice for all layers whose bias no ONNX file can hold as it is."""
    found = [layer for layer in layers if layer.bias_overflow]
    if not found:
        return
    first = max(found, key=lambda layer: len(layer.bias_overflow))
    shown = ", ".join(map(str, first.bias_overflow[:4])) + ", ..." * (len(first.bias_overflow) > 4)
    others = f", and so are biases of {len(found) - 1} more layers" * (len(found) > 1)
    evidence = (
        f"the bias of channel {shown} is beyond int32 in steps of input scale times weight scale"
        f"{others}"
    )
    action = (
        "This engine keeps biases in float; an ONNX file gets coarser weights for these channels: "
        "keep the layer in float if the file has to be as good"
    )
    yield Advice(first.layer, BIAS_OVERFLOW, evidence, action, harm=_FILE_HARM)


def _kept(layer: Layer, rule: Rule) -> Advice:
    largest = layer.split.largest if layer.split is not None else ""
    cause = _CAUSES.get(largest, "rounding")
    local = 0.0 if layer.local is None else layer.local.sqnr
    evidence = f"alone it is at {local:.1f} dB, and most of that is {largest or 'rounding'}"
    kept = (Rule(rule.match, keep_float=True),)
    return Advice(layer.layer, cause, evidence, "Keep it in float", kept)


_CAUSES = {
    "weight clipping": "weight clipping",
    "weight rounding": "weight rounding",
    "input clipping": "activation clipping",
    "output clipping": "activation clipping",
    "input rounding": "activation rounding",
    "output rounding": "activation rounding",
}
