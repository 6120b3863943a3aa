"""The table of ``halfstep inspect``: a row per tensor, then the totals and what is not in it."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from halfstep.cli.columns import columns_of, print_columns, width_of
from halfstep.cli.console import escaped, print_plain
from halfstep.cli.view import TensorView, granularity_in_words
from halfstep.cli.words import interval, ratio, share, size
from halfstep.formats import TensorFile
from halfstep.formats.summary import QuantizedSummary

MAX_OTHERS: Final = 8
_IDENTITY: Final = ("name", "shape", "dtype")
_CODES: Final = ("scale", "zero point", "codes used", "saturated")
_SIZES: Final = ("bytes", "of float32")


def print_table(opened: TensorFile, views: Sequence[TensorView], console: Console) -> None:
    """Print what the file is, the table, a totals line, and what the file holds besides."""
    print_heading(opened, console)
    for table in _tables(views, console.width):
        print_columns(table, console, right={*_CODES, *_SIZES})
    _print_totals(views, console)
    for name, reason in opened.unreadable.items():
        print_plain(f"not read: {name}: {reason}", console)
    if opened.others:
        more = len(opened.others) - MAX_OTHERS
        names = ", ".join(opened.others[:MAX_OTHERS]) + (f" and {more} more" if more > 0 else "")
        print_plain(f"not tensors: {names}", console)


def print_heading(opened: TensorFile, console: Console) -> None:
    """Print the path, the kind of the file, and what it says of itself."""
    print_plain(f"{opened.path}: {opened.kind}", console)
    for line in opened.about:
        print_plain(f"  {line}", console)


def _tables(views: Sequence[TensorView], width: int) -> Iterator[dict[str, list[str]]]:
    """One table; on a terminal that is too narrow for it, formats first and codes below."""
    rows = [_cells(view) for view in views]
    quantized = [row for row in rows if "scale" in row]
    if not quantized:
        yield from [columns_of(rows, (*_IDENTITY, *_SIZES))] if rows else ()
        return
    whole = columns_of(rows, (*_IDENTITY, "granularity", *_CODES, *_SIZES))
    if width_of(whole) <= width:
        yield whole
        return
    yield columns_of(rows, (*_IDENTITY, "granularity", *_SIZES))
    yield columns_of(quantized, ("name", *_CODES))


def _cells(view: TensorView) -> dict[str, str]:
    stored, summary = view.stored, view.summary
    cells = {
        "name": escaped(view.name),
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
    return cells


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
