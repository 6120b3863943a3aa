"""The table of ``halfstep inspect``: a row per tensor, then the totals and what is not in it."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from halfstep.cli.console import UNBROKEN_WIDTH, print_plain, printable
from halfstep.cli.view import TensorView, granularity_in_words
from halfstep.cli.words import interval, ratio, share, size
from halfstep.formats import TensorFile
from halfstep.formats.summary import QuantizedSummary

MAX_OTHERS: Final = 8
_IDENTITY: Final = ("name", "shape", "dtype")
_CODES: Final = ("scale", "zero point", "codes used", "saturated")
_SIZES: Final = ("bytes", "of float32")


def print_table(opened: TensorFile, views: Sequence[TensorView], console: Console) -> None:
    """Print the table, a totals line, and what the file holds besides."""
    print_plain(f"{opened.path}: {opened.kind}", console)
    for table in _tables(views, console):
        console.print(table)
    _print_totals(views, console)
    for name, reason in opened.unreadable.items():
        print_plain(f"not read: {name}: {reason}", console)
    if opened.others:
        more = len(opened.others) - MAX_OTHERS
        names = ", ".join(opened.others[:MAX_OTHERS]) + (f" and {more} more" if more > 0 else "")
        print_plain(f"not tensors: {names}", console)


def _tables(views: Sequence[TensorView], console: Console) -> Iterator[Table]:
    """One table; on a terminal that is too narrow for it, formats first and codes below."""
    quantized = [view for view in views if view.stored.spec]
    if not quantized:
        yield from [_table(views, (*_IDENTITY, *_SIZES))] if views else ()
        return
    whole = _table(views, (*_IDENTITY, "granularity", *_CODES, *_SIZES))
    unbroken = console.options.update(max_width=UNBROKEN_WIDTH)
    if Measurement.get(console, unbroken, whole).maximum <= console.width:
        yield whole
        return
    yield _table(views, (*_IDENTITY, "granularity", *_SIZES))
    yield _table(quantized, ("name", *_CODES))


def _table(views: Sequence[TensorView], columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        is_number = column in (*_CODES, *_SIZES)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for view in views:
        cells = _cells(view)
        table.add_row(*(cells.get(column, Text("-")) for column in columns))
    return table


def _cells(view: TensorView) -> dict[str, Text]:
    stored, summary = view.stored, view.summary
    cells = {
        "name": view.name,
        "shape": str(stored.shape).replace(",)", ")"),
        "dtype": view.format,
        "bytes": size(stored.nbytes),
        "of float32": ratio(stored.nbytes, view.float32_bytes),
    }
    if stored.spec and isinstance(summary, QuantizedSummary):
        is_float = stored.spec.float_zero_point
        cells |= {
            "granularity": granularity_in_words(stored.spec.granularity),
            "scale": interval(summary.scale),
            "zero point": interval(summary.zero_point) + (" (float)" if is_float else ""),
            "codes used": share(summary.codes_used),
            "saturated": share(summary.saturated),
        }
    return {column: printable(text) for column, text in cells.items()}


def _print_totals(views: Sequence[TensorView], console: Console) -> None:
    stored = sum(view.stored.nbytes for view in views)
    floats = sum(view.float32_bytes for view in views)
    quantized = sum(view.stored.spec is not None for view in views)
    plural = "" if len(views) == 1 else "s"
    print_plain(
        f"{len(views)} tensor{plural}, {quantized} quantized: {size(stored)}, "
        f"{ratio(stored, floats)} of the {size(floats)} that float32 takes",
        console,
    )
