"""What the numbers of a layer say is wrong with it, and what may help; what does is measured later.

Each cause has one function, from a layer to pieces of advice: alternatives for one trouble.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from halfstep.observe import MinMaxObserver
from halfstep.report.ranges import SATURATED, SHARE, Ranges, RuleOf, lost, share, span
from halfstep.report.records import Advice, Layer, Values
from halfstep.report.words import percent
from halfstep.spec import PerChannel, QSpec, Rule, int8
from halfstep.spec.remedies import CorrectBias

# Below this a layer's own error, in dB, or that at its end, is worth a look.
_LOCAL, _GATHERED = 30.0, 20.0
# A trouble of files, which no measurement on this engine shows: below all that one does.
BIAS_OVERFLOW, _FILE_HARM = "bias overflow", 0.5
# What no single layer shows.
MEANS = Advice(
    "",
    "shifted means",
    "rounding shifts the mean of what layers make, and that adds up from layer to layer",
    "Correct the biases by what the means are off",
    remedies=(CorrectBias(),),
)
_ROWS = QSpec(int8, PerChannel(0), symmetric=True)
_TRANSPOSED = QSpec(int8, PerChannel(1), symmetric=True)


def candidates(layers: Iterable[Layer], rule_of: RuleOf) -> list[Advice]:
    """Everything that may be wrong and may help, of the layers that are worth a look, worst first.

    ``harm`` is not known yet, but of what is wrong whatever the output shows: a bias that no ONNX
    file can hold, and channels beside which the others are lost.
    """
    every = list(layers)
    values = Ranges(every, rule_of)
    found: list[Advice] = []
    for layer in sorted(filter(_is_worth, every), key=_badness):
        own = rule_of(layer.own)
        if own is not None:
            found += [*values.of(layer), *_weights(layer, own), _kept(layer, own)]
    together = [*values.together(), *values.left_out()]
    return [*values.outlier_channels(), *together, *found, *_biases(every)]


def _badness(layer: Layer) -> float:
    return math.inf if layer.local is None or math.isnan(layer.local.sqnr) else layer.local.sqnr


def _is_worth(layer: Layer) -> bool:
    local, gathered = layer.local, layer.accumulated
    if local is None or gathered is None or layer.split is None or not layer.split.total:
        return False
    is_odd = any(each.outliers or each.saturated > SATURATED for each in _tensors(layer))
    return local.sqnr < _LOCAL or gathered.sqnr < _GATHERED or is_odd


def _tensors(layer: Layer) -> Iterator[Values]:
    yield from layer.inputs
    yield from (each for each in (layer.output, layer.weight) if each is not None)


def _weights(layer: Layer, rule: Rule) -> Iterator[Advice]:
    weight = layer.weight
    if weight is None:
        return
    has_one_scale = len(weight.scale) == 1 and len(weight.channel_low) > 1
    # A weight has codes on both sides, so half as many on one.
    harm = lost(2 * weight.channel_spread) if has_one_scale else 0.0
    if not harm and share(layer, "weight rounding", "weight clipping") < SHARE:
        return
    spread = (
        f"channel {weight.outliers[0]} of {len(weight.channel_low)} reaches "
        f"{weight.channel_spread:.0f} times as far as the median one"
        if weight.outliers
        else f"{percent(share(layer, 'weight rounding'))} of its error is rounding of the weight"
    )
    by_channel = replace(rule, weight=_TRANSPOSED if "transpose" in layer.op else _ROWS)
    if has_one_scale:
        cause = "outlier weight channel" if weight.outliers else "one scale for all weights"
        action = "Give each output channel a scale of its own"
        yield Advice(layer.layer, cause, spread, action, (by_channel,), harm=harm)
    elif rule.weight is not None and _bits(rule.weight) < 8:
        action = "Use 8 bits for its weight"
        cause = f"weights of {_bits(rule.weight)} bits"
        yield Advice(layer.layer, cause, spread, action, (by_channel,))
    if weight.saturated > SATURATED and share(layer, "weight clipping") > SHARE:
        evidence = f"{percent(weight.saturated)} of its weights lie outside of {span(weight)}"
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
