"""What is told first: which layers are worst, where the error starts, what was lost and gained."""

import math
from collections.abc import Iterable

from halfstep.report.columns import size
from halfstep.report.records import Findings, Layer
from halfstep.report.words import (
    change,
    cosine,
    decibels,
    milliseconds,
    name_of,
    number,
    times_faster,
    times_smaller,
)

_VERDICTS = ("hurts itself", "inherits", "fine")


def worst_first(layers: Iterable[Layer]) -> list[Layer]:
    """Layers by what they do to the model: those that hurt, those that inherit, the others.

    Among those that hurt, the lowest local SQNR is first, else the lowest accumulated one. One that
    is not finite is the worst of its kind; one that was not measured is last.

    >>> from halfstep.report.records import Error
    >>> bad, good = Error(signal=1.0, noise=0.5), Error(signal=1.0, noise=1e-6)
    >>> layers = [Layer("a", "a", "relu", "int8", local=good, accumulated=good)]
    >>> layers += [Layer("b", "b", "conv2d", "int8", local=bad, accumulated=bad)]
    >>> [layer.layer for layer in worst_first(layers)]
    ['b', 'a']
    """
    return sorted(layers, key=_badness)


def _badness(layer: Layer) -> tuple[int, float, int]:
    hurts = layer.verdict == _VERDICTS[0]
    error = layer.local if hurts and layer.local is not None else layer.accumulated
    sqnr = math.inf if error is None else error.sqnr
    ordered = -math.inf if math.isnan(sqnr) else sqnr
    return _VERDICTS.index(layer.verdict), ordered, layer.depth


def lost(findings: Findings) -> str:
    """What quantizing cost, in one sentence."""
    if not findings.layers and not findings.batches:
        return "Nothing was measured: the model has no layer that was traced."
    if findings.layers and not _compared(findings):
        return "Nothing was compared: the batches hold no values."
    if findings.is_equal:
        return "No difference: float and quantized model agree in every value that was compared."
    if not findings.output.elements:
        return "The output is not compared; what the layers lose is below."
    sqnr = findings.output.sqnr
    if math.isnan(sqnr) or sqnr == -math.inf:
        return "The output is not comparable: it holds values that are not finite, or is all noise."
    share = 100 * math.sqrt(10 ** (-sqnr / 10))
    return f"The output has an SQNR of {decibels(sqnr)}: the error is {share:.2g} % of the signal."


def _compared(findings: Findings) -> int:
    """How many values were compared, of the output and of all layers."""
    measured = [layer.accumulated for layer in findings.layers if layer.accumulated is not None]
    return sum(error.elements for error in (findings.output, *measured))


def starts(findings: Findings) -> str:
    """Where the error starts, in one sentence; empty for equal models and where none is bad."""
    hurting = [layer for layer in findings.layers if layer.verdict == _VERDICTS[0]]
    if findings.is_equal:
        return ""
    if not hurting:
        return "No layer stands out by an error of its own: the loss is spread over all."
    first = min(hurting, key=lambda layer: layer.depth)
    own = decibels(None if first.local is None else first.local.sqnr)
    others = len(hurting) - 1
    more = f", and {others} more {'hurts itself' if others == 1 else 'hurt themselves'}"
    return (
        f"It starts at {name_of(first)} ({first.op}), which alone is at {own}{more * (others > 0)}."
    )


def figures(findings: Findings) -> list[tuple[str, str]]:
    """The numbers of the whole model with their names."""
    shown = []
    if findings.output.elements:
        shown += [
            ("output SQNR", decibels(findings.output.sqnr)),
            ("cosine", cosine(findings.output)),
            ("max error", number(findings.output.largest)),
        ]
    if findings.task is not None:
        shown.append(("task metric", change(*findings.task)))
    before, after = findings.before, findings.after
    if before:
        both = f"{size(before)} before, {size(after)} after"
        shown.append(("size", f"{both} ({times_smaller(before, after)} times smaller)"))
    if findings.float_ms is not None and findings.ms is not None:
        both = f"{milliseconds(findings.float_ms)} in float, {milliseconds(findings.ms)} quantized"
        shown.append(("time", f"{both} ({times_faster(findings.float_ms, findings.ms)})"))
    return shown
