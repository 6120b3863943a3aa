"""The kernel for rows that are quantized while the model runs."""

from typing import Any

import torch
from torch import Tensor

from halfstep.graph.frozen import Bound, Lookup
from halfstep.numerics import native_codes, rows
from halfstep.numerics.native_codes import Rows, is_served
from halfstep.spec import PerChannel, PerToken, QSpec


def quantizer(spec: QSpec) -> Any:
    """The function of x that ``rows.quantize_rows`` is for a format, or None."""
    contiguous = spec.granularity in (PerToken(), PerChannel(0))
    if not contiguous or spec.float_zero_point or not is_served(spec.dtype.storage):
        return None
    bounds, dtype = (spec.qmin, spec.qmax), spec.dtype.storage

    def run(x: Tensor) -> Rows:
        if x.numel() == 0 or x.ndim == 0:
            return rows.quantize_rows(x, spec)
        shape = spec.granularity.scale_shape(tuple(x.shape))
        values = x.to(torch.float32).contiguous()
        return native_codes.quantize_rows(values, shape, dtype, bounds, symmetric=spec.symmetric)

    return run


def quantize_rows(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.quantize_rows."""
    x, spec = args
    run = quantizer(spec)
    return None if run is None else Bound(run, (x,))


BINDERS = {"int.quantize_rows": quantize_rows}
