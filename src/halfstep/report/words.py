"""Numbers of an explanation as words, for people: what is not finite is said, not printed."""

import math

from halfstep.report.records import Error, Findings, Layer

NOT_MEASURED = "not measured"


def decibels(value: float | None) -> str:
    """An SQNR; "exact" where nothing differs.

    >>> decibels(23.456), decibels(float("inf")), decibels(float("nan"))
    ('23.5 dB', 'exact', 'not finite')
    """
    if value is None:
        return NOT_MEASURED
    if value == math.inf:
        return "exact"
    if value == -math.inf:
        return "all noise"
    return "not finite" if math.isnan(value) else f"{value:.1f} dB"


def cosine(error: Error) -> str:
    """The cosine of an error.

    >>> cosine(Error(signal=1.0, noise=0.02, product=0.99, power=1.0))
    '0.990000'
    """
    return f"{error.cosine:.6f}" if math.isfinite(error.cosine) else "not finite"


def number(value: float | None) -> str:
    """Any other number, to four digits.

    >>> number(0.123456), number(1e-9), number(1234567.0), number(float("-inf"))
    ('0.1235', '1e-09', '1.235e+06', 'not finite')
    """
    if value is None:
        return NOT_MEASURED
    return f"{value:.4g}" if math.isfinite(value) else "not finite"


def percent(share: float) -> str:
    """A share of a whole.

    >>> percent(0.25), percent(0.0123), percent(0.0004), percent(0.999)
    ('25%', '1.23%', '0.04%', '99.9%')
    """
    return f"{100 * share:.3g}%" if share >= 1e-3 else f"{100 * share:.1g}%"


def milliseconds(value: float | None) -> str:
    """A time.

    >>> milliseconds(0.01234), milliseconds(12.3456), milliseconds(None)
    ('0.012 ms', '12.35 ms', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    return f"{value:.3f} ms" if value < 1 else f"{value:.2f} ms"


def times_smaller(before: float, after: float) -> str:
    """How many times the one is the other.

    >>> times_smaller(18.4, 4.6), times_smaller(2, 3), times_smaller(0, 0)
    ('4.00', '0.67', '1.00')
    """
    return f"{before / after:.2f}" if after else "1.00"


def times_faster(before: float, after: float, times: str = " times") -> str:
    """How much faster, or slower, something became.

    >>> times_faster(3.0, 2.0), times_faster(2.0, 3.0), times_faster(3.0, 2.0, " ×")
    ('1.50 times faster', '1.50 times slower', '1.50 × faster')
    """
    if after > before:
        return f"{times_smaller(after, before)}{times} slower"
    return f"{times_smaller(before, after)}{times} faster"


def change(before: float, after: float) -> str:
    """A metric before and after, with its change.

    >>> change(0.9, 0.85)
    '0.9 in float, 0.85 quantized (-0.05)'
    """
    both = f"{number(before)} in float, {number(after)} quantized"
    difference = after - before
    return f"{both} ({difference:+.4g})" if math.isfinite(difference) else both


def counted(count: int, one: str, many: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "layer"), counted(3, "batch", "batches")
    ('1 layer', '3 batches')
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def name_of(layer: Layer) -> str:
    """A layer for people: its module, or where the model itself does it, the value that it brings.

    >>> name_of(Layer("add_1", "", "add", "float"))
    'add_1'
    """
    return layer.layer or layer.value


def measured_on(findings: Findings) -> str:
    """How much data stands behind the numbers."""
    if not findings.batches:
        return "measured on no data"
    batches = counted(findings.batches, "batch", "batches")
    if not findings.samples:  # none, or nobody knows: a function ran the model
        return f"measured on {batches}"
    return f"measured on {counted(findings.samples, 'sample')} in {batches}"
