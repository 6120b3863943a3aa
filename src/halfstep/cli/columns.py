"""Columns of text laid out by hand: tables of rich take half a millisecond a row."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rich.cells import cell_len, chop_cells
from rich.console import Console

GAP: Final = "   "
LEAST_WIDTH: Final = 16  # of the first column, where the others leave it less


def columns_of(
    rows: Sequence[Mapping[str, str]], names: Sequence[str], absent: str = "-"
) -> dict[str, list[str]]:
    """The columns of these names; a row that lacks one has ``absent`` there.

    >>> columns_of([{"a": "1"}, {"a": "2", "b": "3"}], ("a", "b"))
    {'a': ['1', '2'], 'b': ['-', '3']}
    """
    return {name: [row.get(name, absent) for row in rows] for name in names}


def width_of(columns: Mapping[str, Sequence[str]]) -> int:
    """How wide the lines are, in cells of a terminal."""
    widths = [_width(name, cells) for name, cells in columns.items()]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _width(name: str, cells: Sequence[str]) -> int:
    return max(cell_len(name), *(cell_len(cell) for cell in cells))


def print_columns(
    columns: Mapping[str, Sequence[str]], console: Console, *, right: Collection[str] = ()
) -> None:
    """Print a table with a header; the columns in ``right`` are flush right.

    The first column is folded where the lines would be wider than the console.
    """
    widths = {name: _width(name, cells) for name, cells in columns.items()}
    first = next(iter(columns))
    room = console.width - sum(widths.values()) - len(GAP) * (len(widths) - 1) + widths[first]
    widths[first] = min(widths[first], max(room, LEAST_WIDTH))

    def line(cells: Sequence[str]) -> str:
        named = zip(widths, cells, strict=True)
        return GAP.join(_padded(cell, widths[name], name in right) for name, cell in named)

    head, *lines = [
        line(part)
        for row in [tuple(columns), *zip(*columns.values(), strict=True)]
        for part in _folded(row, widths[first])
    ]
    console.out(head, style="bold", highlight=False)
    rule = ("-" if console.options.ascii_only else "─") * (
        sum(widths.values()) + len(GAP) * (len(widths) - 1)
    )
    console.out("\n".join([rule, *lines]), highlight=False)


def _padded(cell: str, width: int, is_right: bool) -> str:  # noqa: FBT001  # of one caller
    blank = " " * (width - cell_len(cell))
    return blank + cell if is_right else cell + blank


def _folded(row: tuple[str, ...], width: int) -> list[tuple[str, ...]]:
    """The row, and below it what the first column has no room for."""
    first, *others = row
    if cell_len(first) <= width:
        return [row]
    return [
        (part, *(others if place == 0 else [""] * len(others)))
        for place, part in enumerate(chop_cells(first, width))
    ]
