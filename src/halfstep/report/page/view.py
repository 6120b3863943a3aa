"""What the template shows: the figures on top, and the rows of the table of layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from halfstep.report.columns import size
from halfstep.report.headline import worst_first
from halfstep.report.records import Error, Findings, Layer
from halfstep.report.words import (
    cosine,
    decibels,
    milliseconds,
    name_of,
    number,
    times_faster,
    times_smaller,
)

_NONE = "–"


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of the summary: its name, its value, and a remark."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. is_wide: left out where the screen is narrow."""

    key: str
    title: str
    is_number: bool = False
    is_wide: bool = False


COLUMNS = (
    Column("depth", "#", is_number=True, is_wide=True),
    Column("name", "layer"),
    Column("op", "op", is_wide=True),
    Column("runs", "runs as", is_wide=True),
    Column("local", "alone", is_number=True),
    Column("accumulated", "so far", is_number=True),
    Column("verdict", "verdict"),
    Column("source", "mostly from", is_wide=True),
    Column("before", "float bytes", is_number=True, is_wide=True),
    Column("after", "bytes", is_number=True, is_wide=True),
    Column("float_ms", "float ms", is_number=True, is_wide=True),
    Column("ms", "ms", is_number=True, is_wide=True),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: what it shows, what it is sorted by (nothing: it comes last), and a remark below."""

    text: str
    sort: str | float = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the place of its layer, and a cell for each column."""

    place: int
    verdict: str
    runs: str
    cells: tuple[Cell, ...]


def tiles(findings: Findings) -> list[Tile]:
    """The figures of the whole model."""
    shown = []
    if findings.output.elements:
        output = findings.output
        shown.append(Tile("Output SQNR", decibels(output.sqnr), f"cosine {cosine(output)}"))
        shown.append(Tile("Largest error", number(output.largest), "of one output"))
    if findings.task is not None:
        before, after = findings.task
        shown.append(Tile("Task metric", number(after), f"{number(before)} in float"))
    before_bytes, after_bytes = findings.before, findings.after
    if before_bytes:
        ratio = times_smaller(before_bytes, after_bytes)
        shown.append(
            Tile("Size", size(after_bytes), f"{size(before_bytes)} in float: {ratio} × smaller")
        )
    if findings.float_ms is not None and findings.ms is not None:
        ratio = times_faster(findings.float_ms, findings.ms, " ×")
        slow = milliseconds(findings.float_ms)
        shown.append(Tile("Time", milliseconds(findings.ms), f"{slow} in float: {ratio}"))
    return shown


def columns(findings: Findings) -> tuple[Column, ...]:
    """The columns that have something to say: times where they were measured."""
    is_timed = any(layer.ms is not None for layer in findings.layers)
    return tuple(column for column in COLUMNS if is_timed or column.key not in ("float_ms", "ms"))


def rows(findings: Findings, shown: Sequence[Column]) -> list[Row]:
    """A row for each layer, the worst first."""
    places = {id(layer): place for place, layer in enumerate(findings.layers)}
    return [_row(places[id(layer)], layer, shown) for layer in worst_first(findings.layers)]


def _row(place: int, layer: Layer, shown: Sequence[Column]) -> Row:
    source = layer.split.largest if layer.split is not None else ""
    cells = {
        "depth": Cell(str(layer.depth), layer.depth),
        "name": Cell(name_of(layer), name_of(layer), _fused(layer)),
        "op": Cell(layer.op, layer.op),
        "runs": Cell(layer.runs, layer.runs, layer.why),
        "local": _sqnr(layer.local),
        "accumulated": _sqnr(layer.accumulated),
        "verdict": Cell(layer.verdict, layer.verdict),
        "source": Cell(source or _NONE, source),
        "before": _bytes(layer.before),
        "after": _bytes(layer.after),
        "float_ms": _ms(layer.float_ms),
        "ms": _ms(layer.ms, "slower" * layer.is_slower),
    }
    return Row(place, layer.verdict, layer.runs, tuple(cells[column.key] for column in shown))


def _fused(layer: Layer) -> str:
    """What is fused, by the last part of its name: the first is the layer's own, mostly."""
    names = [name.rpartition(".")[2] for name in layer.fused]
    return f"with {', '.join(names)}" if names else ""


def _sqnr(error: Error | None) -> Cell:
    """Sorted with what is not finite as the worst, and what is exact as the best."""
    if error is None:
        return Cell(_NONE)
    shown = decibels(error.sqnr).removesuffix(" dB")
    if math.isfinite(error.sqnr):
        return Cell(shown, round(error.sqnr, 3))
    return Cell(shown, 1e9 if error.sqnr == math.inf else -1e9)


def _bytes(count: int) -> Cell:
    return Cell(size(count), count) if count else Cell(_NONE)


def _ms(value: float | None, remark: str = "") -> Cell:
    return Cell(_NONE) if value is None else Cell(f"{value:.3f}", round(value, 6), remark)
