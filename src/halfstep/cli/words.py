"""Numbers in the form that people read."""

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None) -> str:
    """Four significant digits; integers in full.

    >>> number(0.0123456), number(-128), number(None)
    ('0.01235', '-128', '-')
    """
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def interval(values: tuple[float, float] | None) -> str:
    """A range as one number where both ends are equal.

    >>> interval((0.5, 2.0)), interval((0, 0))
    ('0.5 .. 2', '0')
    """
    if values is None:
        return "-"
    low, high = values
    return number(low) if low == high else f"{number(low)} .. {number(high)}"


def share(value: float | None) -> str:
    """A share in per cent; one that rounds to nothing is not called nothing.

    >>> share(0.5), share(0.00001), share(0.0)
    ('50.0 %', '<0.1 %', '0 %')
    """
    if value is None:
        return "-"
    if value == 0:
        return "0 %"
    return "<0.1 %" if value < 0.001 else f"{100 * value:.1f} %"


def size(count: int) -> str:
    """Bytes in decimal units.

    >>> size(999), size(18_826_032)
    ('999 B', '18.8 MB')
    """
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {_UNITS[-1]}"


def ratio(part: int, whole: int) -> str:
    """``part`` as a multiple of ``whole``.

    >>> ratio(1, 4), ratio(1, 0)
    ('0.25x', '-')
    """
    return f"{part / whole:.2f}x" if whole else "-"
