"""How a quantized tensor prints: its integers first, then what they mean."""

from html import escape

import torch
from torch import Tensor

from halfstep.numerics.checks import has_values
from halfstep.spec import QSpec

_SHOWN = 8  # rows, columns and channels in the notebook view


def text(ints: Tensor, scale: Tensor, zero_point: Tensor, spec: QSpec, dtype: torch.dtype) -> str:
    """The integers as torch prints them, the format, and the scales."""
    if not has_values(ints):
        return f"QTensor(..., shape={tuple(ints.shape)}, {_format(spec, dtype)})"
    body = _numbers(ints.to(torch.int64), "QTensor(")
    qparams = (
        f"scale={_numbers(_flat(scale, spec))}, zero_point={_numbers(_flat(zero_point, spec))}"
    )
    shape = f"shape={tuple(ints.shape)}, " if ints.ndim > 1 or ints.numel() > 1000 else ""
    return f"QTensor({body},\n        {shape}{_format(spec, dtype)},\n        {qparams})"


def html(ints: Tensor, scale: Tensor, zero_point: Tensor, spec: QSpec, dtype: torch.dtype) -> str:
    """A caption, the first integers as a table, and the first scales."""
    caption = f"QTensor {tuple(ints.shape)}, {_format(spec, dtype)}"
    if not has_values(ints):
        return f"<p>{escape(caption)}</p>"
    corner = ints.to(torch.int64)
    while corner.ndim > 2:
        corner = corner[0] if len(corner) else corner.flatten(0, 1)
    rows = corner.reshape(1, -1) if corner.ndim < 2 else corner
    return (
        f"<table><caption>{escape(caption)}</caption>"
        + "".join(_row(row.tolist()) for row in rows[:_SHOWN])
        + "</table>"
        + _table("scale", _flat(scale, spec))
        + _table("zero_point", _flat(zero_point, spec))
    )


def _format(spec: QSpec, dtype: torch.dtype) -> str:
    return f"{spec}, dtype={dtype}"


def _flat(qparam: Tensor, spec: QSpec) -> Tensor:
    """One number per tensor, one list per channel, all dimensions otherwise."""
    if qparam.numel() == 1:
        return qparam.reshape(())
    return qparam.flatten() if qparam.numel() == max(qparam.shape) else qparam


def _numbers(values: Tensor, prefix: str = "") -> str:
    """Numbers as torch prints them, without the word ``tensor``."""
    if values.ndim == 0:
        return f"{values.item():.6g}"
    printed = repr(values.detach().cpu())
    inner = printed.removeprefix("tensor(").rpartition("]")[0] + "]"
    return inner.replace("\n       ", "\n" + " " * len(prefix)) if prefix else inner


def _row(values: list[int]) -> str:
    shown = [str(value) for value in values[:_SHOWN]] + ["…"] * (len(values) > _SHOWN)
    return "<tr>" + "".join(f"<td>{value}</td>" for value in shown) + "</tr>"


def _table(name: str, values: Tensor) -> str:
    flat = values.flatten()
    shown = [f"{value:.6g}" for value in flat[:_SHOWN].tolist()] + ["…"] * (flat.numel() > _SHOWN)
    return f"<p>{name}: {', '.join(shown)}</p>"
