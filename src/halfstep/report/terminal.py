"""An explanation in a terminal: worst first, at most 100 columns, without colors in plain text."""

import io
import math
from typing import TYPE_CHECKING

from halfstep.report.columns import shortened, size
from halfstep.report.headline import figures, lost, starts, worst_first
from halfstep.report.paste import to_python
from halfstep.report.records import Advice, Error, Findings, Layer
from halfstep.report.words import counted, decibels, measured_on, milliseconds, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

WIDTH = 100
_SHOWN = 15
_NAMED = 5
_GAP = 2
_HEAD = ("op", "runs as", "alone dB", "so far dB", "verdict", "most of it from")
_STYLES = {"hurts itself": "bold red", "inherits": "yellow", "fine": "green"}


def to_text(findings: Findings) -> str:
    """What is found, as plain text of at most 100 columns.

    >>> from halfstep.report.records import Error
    >>> from halfstep.spec.recipe import Recipe
    >>> found = Findings("Net", Recipe("mine"), "torch", Error(), (), batches=1, samples=2)
    >>> print(to_text(found))
    Net, recipe mine, engine torch, measured on 2 samples in 1 batch
    No difference: float and quantized model agree in every value that was compared.
    """
    from rich.console import Console  # noqa: PLC0415  (an import of halfstep loads no rich)

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        for part in renderables(findings):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def renderables(findings: Findings) -> "Iterator[RenderableType]":
    """What a Rich console prints, one after the other."""
    yield from _head(findings)
    yield from _layers(findings)
    yield from _asides(findings)
    yield from _advice(findings)
    yield from _recipe(findings)
    yield from _kept(findings)
    yield from map(_text, findings.notes)


def _text(text: str, style: str = "") -> "Text":
    """Text that is taken literally: names of layers are no markup."""
    from rich.text import Text  # noqa: PLC0415  (as above)

    return Text(text, style=style)


def _head(findings: Findings) -> "Iterator[RenderableType]":
    title = f"{findings.model}, recipe {findings.recipe.name}, engine {findings.engine}"
    yield _text(f"{title}, {measured_on(findings)}", "bold")
    for sentence in filter(None, (lost(findings), starts(findings))):
        yield _text(sentence)
    shown = figures(findings)
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        yield _text(f"  {name.ljust(width)}  {value}")


def _layers(findings: Findings) -> "Iterator[RenderableType]":
    measured = [layer for layer in findings.layers if layer.accumulated is not None]
    if not measured or findings.is_equal:
        return
    worst = worst_first(measured)[:_SHOWN]
    rows = [_cells(layer) for layer in worst]
    widths = [max(map(len, column)) + _GAP for column in zip(_HEAD, *rows, strict=True)]
    room = WIDTH - sum(widths)
    table = _empty_table()
    for layer, (op, *cells, verdict, source) in zip(worst, rows, strict=True):
        name, style = shortened(name_of(layer), room), _STYLES[layer.verdict]
        shown = [_text(text) for text in (name, op, *cells)]
        table.add_row(*shown, _text(verdict, style), _text(source))
    yield ""
    yield table
    if more := len(measured) - len(worst):
        yield _text(f"and {counted(more, 'better layer')}", "dim")


def _empty_table() -> "Table":
    from rich.table import Table  # noqa: PLC0415  (as above)

    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold", pad_edge=False)
    for head in ("worst layers", *_HEAD):
        is_number = head.endswith("dB")
        table.add_column(head, justify="right" if is_number else "left", no_wrap=True)
    return table


def _cells(layer: Layer) -> tuple[str, ...]:
    """What stands behind the name."""
    source = layer.split.largest if layer.split is not None else ""
    errors = _sqnr(layer.local), _sqnr(layer.accumulated)
    return (shortened(layer.op, 12), shortened(layer.runs, 12), *errors, layer.verdict, source)


def _sqnr(error: Error | None) -> str:
    return "" if error is None else decibels(error.sqnr).removesuffix(" dB")


def _asides(findings: Findings) -> "Iterator[RenderableType]":
    """Layers that bring no gain: those that are slower, and those that stayed float, with why."""
    slow = [
        f"{name_of(layer)} ({milliseconds(layer.float_ms)} in float, {milliseconds(layer.ms)})"
        for layer in findings.layers
        if layer.is_slower
    ]
    still = [
        name_of(layer) + f" ({layer.why})" * bool(layer.why)
        for layer in findings.layers
        if layer.runs == "float"
    ]
    for title, names in (("Slower than in float", slow), ("Stayed float", still)):
        if names:
            yield ""
            yield _text(f"{title}: {_listed(names)}")


def _listed(names: list[str]) -> str:
    more = f"; and {len(names) - _NAMED} more" * (len(names) > _NAMED)
    return "; ".join(names[:_NAMED]) + more


def _advice(findings: Findings) -> "Iterator[RenderableType]":
    if not findings.advice:
        return
    from rich.padding import Padding  # noqa: PLC0415  (as above)

    yield ""
    yield _text("What helps, worst first", "bold")
    for place, advice in enumerate(findings.advice[:_NAMED], start=1):
        yield _text(f"{place}. {_place(advice)}: {advice.cause} ({advice.evidence})")
        yield Padding(_text(advice.action), (0, 0, 0, 3))
    if len(findings.advice) > _NAMED:
        yield _text(f"and {len(findings.advice) - _NAMED} more", "dim")


def _place(advice: Advice) -> str:
    return advice.layer or "(the model)"


def _recipe(findings: Findings) -> "Iterator[RenderableType]":
    if findings.suggested_recipe is None:
        return
    reached = findings.suggested_sqnr
    with_it = "" if reached is None else f" (output SQNR with it, measured: {decibels(reached)})"
    yield ""
    yield _text(f"Suggested recipe{with_it}", "bold")
    yield _text(to_python(findings.suggested_recipe, findings.recipe))


def _kept(findings: Findings) -> "Iterator[RenderableType]":
    kept = findings.kept
    if kept is None:
        return
    met = "reaches" if kept.is_met else "does not reach"
    time = "" if kept.ms is None else f" and {milliseconds(kept.ms)}"
    yield ""
    yield _text(f"To keep in float, for the target: {kept.target}", "bold")
    yield _text(", ".join(kept.layers) or "nothing needs to be kept")
    reached = "no error" if kept.reached == math.inf else f"{kept.reached:.4g}"
    yield _text(f"This {met} it: {reached}. It costs {size(kept.bytes)}{time}.")
