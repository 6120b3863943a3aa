"""What ``halfstep inspect --json`` prints: everything in the table, and with names everything."""

import math
from collections.abc import Sequence
from typing import Any

from halfstep.cli.detail import BINS
from halfstep.cli.view import TensorView
from halfstep.formats import TensorFile
from halfstep.formats.summary import PlainSummary, QuantizedSummary
from halfstep.spec import QSpec


def file_as_json(
    opened: TensorFile, views: Sequence[TensorView], *, in_full: bool
) -> dict[str, Any]:
    """Plain JSON values; ``in_full`` adds the integers' histogram, and all scales and zero points.

    Numbers that JSON lacks (NaN, Infinity) become null.
    """
    return {
        "file": str(opened.path),
        "kind": opened.kind,
        "about": list(opened.about),
        "tensors": [_tensor(view) | (_in_full(view) if in_full else {}) for view in views],
        "unreadable": dict(opened.unreadable),
        "not_tensors": list(opened.others),
        "bytes": sum(view.stored.nbytes for view in views),
        "float32_bytes": sum(view.float32_bytes for view in views),
    }


def _tensor(view: TensorView) -> dict[str, Any]:
    stored, summary = view.stored, view.summary
    common = {
        "name": view.name,
        "shape": list(stored.shape),
        "dtype": view.stands_for,
        "bytes": stored.nbytes,
        "float32_bytes": view.float32_bytes,
        "quantized": stored.spec is not None,
    }
    if isinstance(summary, PlainSummary):
        extra = {"nan": summary.nan, "infinite": summary.infinite}
        return common | {"range": _range((summary.low, summary.high)), **extra}
    return common | _codes(stored.spec, summary)


def _codes(spec: QSpec | None, summary: QuantizedSummary) -> dict[str, Any]:
    if spec is None:
        return {}
    return {
        "spec": spec.to_dict(),
        "axis": spec.axis,
        "qmin": spec.qmin,
        "qmax": spec.qmax,
        "scale": _range(summary.scale),
        "zero_point": _range(summary.zero_point),
        "codes": _range(summary.code_range),
        "codes_used": summary.codes_used,
        "saturated": summary.saturated,
    }


def _in_full(view: TensorView) -> dict[str, Any]:
    bins = [{"low": b.low, "high": b.high, "count": b.count} for b in view.bins(BINS)]
    qparams = view.qparams()
    if qparams is None:
        return {"histogram": bins}
    scale, zero_point = qparams
    return {"histogram": bins, "scales": scale.tolist(), "zero_points": zero_point.tolist()}


def _range(values: Sequence[float | None] | None) -> list[float | None] | None:
    if values is None or None in values:
        return None
    return [value if value is not None and math.isfinite(value) else None for value in values]
