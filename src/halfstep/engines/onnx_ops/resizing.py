"""Images made larger or smaller."""

from typing import Any

import torch

from halfstep.engines.onnx_graph import Ref
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

_CUBIC = {"cubic_coeff_a": -0.75}


@translates("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d")
def nearest(g: QdqGraph, x: Ref, size: Any, scales: Any = None, *more: Any) -> Ref:
    """The element below: ``floor(place / scale)``."""
    modes = {"mode": "nearest", "nearest_mode": "floor"}
    return _resized(g, x, size, _scales(scales, more), "asymmetric", modes)


@translates(*(f"aten._upsample_nearest_exact{n}d" for n in (1, 2, 3)))
def nearest_exact(g: QdqGraph, x: Ref, size: Any, scales: Any = None, *more: Any) -> Ref:
    """The element whose center is next."""
    modes = {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}
    return _resized(g, x, size, _scales(scales, more), "half_pixel", modes)


@translates("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d")
def linear(g: QdqGraph, x: Ref, size: Any, align: bool, scales: Any = None, *more: Any) -> Ref:
    """Between the neighbors, by distance."""
    return _resized(g, x, size, _scales(scales, more), _coordinates(align), {"mode": "linear"})


@translates("aten.upsample_bicubic2d")
def cubic(g: QdqGraph, x: Ref, size: Any, align: bool, scales: Any = None, *more: Any) -> Ref:
    """By the cubic through four neighbors an axis."""
    modes = {"mode": "cubic", **_CUBIC}
    return _resized(g, x, size, _scales(scales, more), _coordinates(align), modes)


def _coordinates(align: bool) -> str:
    return "align_corners" if align else "half_pixel"


def _scales(scales: Any, more: tuple[Any, ...]) -> tuple[float, ...] | None:
    """The scales, given as a list or one by one."""
    if isinstance(scales, tuple):
        return scales
    given = (scales, *more)
    return given if given and None not in given else None


def _resized(
    g: QdqGraph, x: Ref, size: Any, scales: Any, coordinates: str, modes: dict[str, Any]
) -> Ref:
    options = {"coordinate_transformation_mode": coordinates, **modes}
    unchanged = [g.size(x, 0), g.size(x, 1)]
    if scales is not None and size is None:
        if not all(isinstance(scale, float | int) for scale in scales):
            raise refuse(g, "a scale that is computed", "give sizes or fixed scales")
        given = g.constant(torch.tensor([1.0, 1.0, *scales]))
        shape = (*x.shape[:2], *(_scaled(n, s) for n, s in zip(x.shape[2:], scales, strict=True)))
        return g.op("Resize", x, None, given, shape=shape, **options)
    sizes = list(size) if isinstance(size, tuple) else [size]
    shape = (*x.shape[:2], *(n if isinstance(n, int) else None for n in sizes))
    return g.op("Resize", x, None, None, g.sizes([*unchanged, *sizes]), shape=shape, **options)


def _scaled(size: int | None, scale: float) -> int | None:
    return None if size is None else int(size * scale)
