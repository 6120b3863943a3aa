"""One tensor in full: what it is, a corner of its integers, its scales, and a histogram."""

from itertools import islice, product
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from torch import Tensor

from halfstep.cli.console import print_plain
from halfstep.cli.view import TensorView, granularity_in_words
from halfstep.cli.words import interval, number, ratio, share, size
from halfstep.formats.histogram import Bin
from halfstep.formats.summary import QuantizedSummary
from halfstep.spec import QSpec

ROWS: Final = 8
COLUMNS: Final = 12
BINS: Final = 16
MAX_SCALES: Final = 16
BAR: Final = 40


def print_detail(view: TensorView, console: Console) -> None:
    """Print everything about one tensor."""
    print_plain(f"{view.name}: {view.format} {tuple(view.stored.shape)}", console)
    for line in _facts(view):
        print_plain(f"  {line}", console)
    _print_corner(view, console)
    qparams = view.qparams()
    if qparams is not None:
        _print_scales(*qparams, console)
    _print_histogram(view.bins(BINS), console)


def _facts(view: TensorView) -> list[str]:
    stored = view.stored
    about = _about_values(view) if stored.spec is None else _about_codes(view, stored.spec)
    return [*about, f"{size(stored.nbytes)}, {ratio(stored.nbytes, view.float32_bytes)} of float32"]


def _about_values(view: TensorView) -> list[str]:
    summary = view.summary
    if isinstance(summary, QuantizedSummary) or summary.low is None or summary.high is None:
        return ["no finite values"]
    odd = f"; {summary.nan} NaN, {summary.infinite} infinite"
    has_odd = summary.nan or summary.infinite
    return [f"values {interval((summary.low, summary.high))}{odd if has_odd else ''}"]


def _about_codes(view: TensorView, spec: QSpec) -> list[str]:
    summary = view.summary
    if not isinstance(summary, QuantizedSummary):
        return []
    form = " (float form: 0.0 is not exact)" if spec.float_zero_point else ""
    use = f"{share(summary.codes_used)} used, {share(summary.saturated)} of the values saturated"
    return [
        f"{granularity_in_words(spec.granularity)}; stands for {view.stands_for}",
        f"scale {interval(summary.scale)}; zero point {interval(summary.zero_point)}{form}",
        f"codes {interval(summary.code_range)} of {spec.qmin} .. {spec.qmax}: {use}",
    ]


def _print_corner(view: TensorView, console: Console) -> None:
    corner = view.corner(ROWS, COLUMNS)
    if corner.numel() == 0:
        return
    what = "integers" if view.stored.spec else "values"
    total = view.float32_bytes // 4
    part = "" if corner.numel() == total else f", {corner.numel()} of {total}"
    console.print()
    print_plain(f"  {what} (axis 0 down, all others across{part})", console)
    cells = [[number(value) for value in row] for row in corner.tolist()]
    width = max(len(cell) for row in cells for cell in row)
    for row in cells:
        print_plain("    " + " ".join(cell.rjust(width) for cell in row), console)


def _print_scales(scale: Tensor, zero_point: Tensor, console: Console) -> None:
    if scale.numel() < 2:
        return
    console.print()
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("index", "scale", "zero point"):
        table.add_column(column, justify="right")
    for place in islice(product(*(range(n) for n in scale.shape)), MAX_SCALES):
        index = ", ".join(str(i) for i, n in zip(place, scale.shape, strict=True) if n > 1)
        values = (scale[place].item(), zero_point[place].item())
        table.add_row(index, *(number(value) for value in values))
    console.print(Padding(table, (0, 0, 0, 3), expand=False))
    if scale.numel() > MAX_SCALES:
        print_plain(f"  and {scale.numel() - MAX_SCALES} more; --json lists all", console)


def _print_histogram(bins: list[Bin], console: Console) -> None:
    if not bins:
        return
    console.print()
    print_plain("  histogram", console)
    most = max(1, *(entry.count for entry in bins))
    labels = [interval((entry.low, entry.high)) for entry in bins]
    width = max(len(label) for label in labels)
    full, least = ("#", ".") if console.options.ascii_only else ("█", "▏")
    for entry, label in zip(bins, labels, strict=True):
        bar = full * round(BAR * entry.count / most) or least * bool(entry.count)
        print_plain(f"    {label.rjust(width)} {bar.ljust(BAR)} {entry.count}", console)
