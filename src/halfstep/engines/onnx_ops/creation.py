"""Operators that make tensors: ranges and constants whose size is known when they run."""

from collections.abc import Sequence
from typing import Any

import torch

from halfstep.engines.onnx_graph import Ref
from halfstep.engines.onnx_ops.table import translates
from halfstep.engines.onnx_qdq import QdqGraph


@translates("aten.arange.start_step")
def arange(g: QdqGraph, start: Any, end: Any, step: Any = 1, dtype: Any = None, **_: Any) -> Ref:
    """``start, start + step, ...`` up to ``end``."""
    kind = dtype if isinstance(dtype, torch.dtype) else torch.int64
    numbers = [g.number(value, kind) for value in (start, end, step)]
    found = g.op("Range", *numbers, shape=(None,), dtype=kind)
    g.ranges[found.name] = (start, end, step)
    return found


@translates("aten.arange.default")
def arange_to(g: QdqGraph, end: Any, dtype: Any = None, **options: Any) -> Ref:
    """``0, 1, ...`` up to ``end``."""
    return arange(g, 0, end, 1, dtype, **options)


@translates("aten.arange.start")
def arange_from(g: QdqGraph, start: Any, end: Any, dtype: Any = None, **options: Any) -> Ref:
    """``start, start + 1, ...`` up to ``end``."""
    return arange(g, start, end, 1, dtype, **options)


@translates("aten.full")
def full(g: QdqGraph, sizes: Sequence[Any], value: Any, dtype: Any = None, **_: Any) -> Ref:
    """One number everywhere."""
    kind = dtype if isinstance(dtype, torch.dtype) else _kind_of(value)
    shape = tuple(n if isinstance(n, int) else None for n in sizes)
    return g.op("Expand", g.number(value, kind), g.sizes(sizes), shape=shape, dtype=kind)


def _kind_of(value: Any) -> torch.dtype:
    if isinstance(value, Ref):
        return value.dtype
    return torch.tensor(value).dtype


@translates("aten.zeros", "aten.new_zeros")
def zeros(g: QdqGraph, *given: Any, dtype: Any = None, **_: Any) -> Ref:
    """Zeros."""
    return _filled(g, given, 0.0, dtype)


@translates("aten.ones", "aten.new_ones")
def ones(g: QdqGraph, *given: Any, dtype: Any = None, **_: Any) -> Ref:
    """Ones."""
    return _filled(g, given, 1.0, dtype)


def _filled(g: QdqGraph, given: tuple[Any, ...], value: float, dtype: Any) -> Ref:
    """Of (sizes, dtype, ...) or, for what is made like another tensor, (x, sizes, dtype, ...)."""
    like = given[0].dtype if isinstance(given[0], Ref) else torch.float32
    rest = given[1:] if isinstance(given[0], Ref) else given
    by_place = rest[1] if len(rest) > 1 else None
    kinds = [kind for kind in (dtype, by_place) if isinstance(kind, torch.dtype)]
    return full(g, rest[0], value, kinds[0] if kinds else like)


@translates("aten.full_like")
def full_like(g: QdqGraph, x: Ref, value: Any = 0.0, dtype: Any = None, **_: Any) -> Ref:
    """One number, in the shape of another value."""
    kind = dtype if isinstance(dtype, torch.dtype) else x.dtype
    shape = g.op("Shape", x, shape=(x.rank,), dtype=torch.int64)
    return g.op("Expand", g.number(value, kind), shape, shape=x.shape, dtype=kind)


@translates("aten.zeros_like")
def zeros_like(g: QdqGraph, x: Ref, dtype: Any = None, *_: Any, **__: Any) -> Ref:
    """Zeros in the shape of another value."""
    return full_like(g, x, 0.0, dtype)


@translates("aten.ones_like")
def ones_like(g: QdqGraph, x: Ref, dtype: Any = None, *_: Any, **__: Any) -> Ref:
    """Ones in the shape of another value."""
    return full_like(g, x, 1.0, dtype)
