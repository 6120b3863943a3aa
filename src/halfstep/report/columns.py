"""Plain text tables that fit a terminal."""

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 100
_GAP = "  "
_LEAST_TEXT = 24


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Rows under a head, at most 100 columns wide; the last column is wrapped.

    Columns in ``right`` are aligned to the right. Other columns are cut in the middle where they
    would leave no room for the last one.

    >>> print(table(("layer", "bytes", "why"), [("fc", "12", "small")], right=[1]))
    layer  bytes  why
    fc        12  small
    """
    fixed = len(head) - 1
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(fixed)]
    over = sum(widths) + len(_GAP) * fixed + _LEAST_TEXT - WIDTH
    if over > 0:
        widest = widths.index(max(widths))
        widths[widest] = max(widths[widest] - over, 8)
    rest = max(WIDTH - sum(widths) - len(_GAP) * fixed, _LEAST_TEXT)
    return "\n".join(
        line for row in (head, *rows) for line in _lines(row, widths, rest, set(right))
    )


def _lines(row: Sequence[str], widths: Sequence[int], rest: int, right: set[int]) -> Iterator[str]:
    cells = [
        shortened(text, width).rjust(width)
        if place in right
        else shortened(text, width).ljust(width)
        for place, (text, width) in enumerate(zip(row, widths, strict=False))
    ]
    first, *more = textwrap.wrap(row[-1], rest) or [""]
    yield _GAP.join([*cells, first]).rstrip()
    indent = sum(widths) + len(_GAP) * len(widths)
    yield from (" " * indent + line for line in more)


def shortened(text: str, width: int) -> str:
    """The text, with its middle left out where it is too long.

    >>> shortened("encoder.layer.11.attention", 12)
    'encode..tion'
    """
    if len(text) <= width:
        return text
    end = (width - 2) // 2 - 1
    return f"{text[: width - 2 - end]}..{text[len(text) - end :]}"


def size(count: int) -> str:
    """Bytes for people.

    >>> size(12), size(4_200), size(98_000_000)
    ('12 B', '4.2 kB', '98.0 MB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"
