"""Padding: constant, mirrored, repeated, circular."""

from collections.abc import Sequence
from typing import Any

from halfstep.engines.onnx_graph import Number, Ref
from halfstep.engines.onnx_ops.choices import sliced
from halfstep.engines.onnx_ops.moves import cat
from halfstep.engines.onnx_ops.table import refuse, translates
from halfstep.engines.onnx_qdq import QdqGraph

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
_END = 2**63 - 1


@translates("aten.pad")
def pad(
    g: QdqGraph, x: Ref, pads: Sequence[Any], mode: str = "constant", value: float | None = None
) -> Ref:
    """Two numbers for each axis, the last axis first."""
    if mode == "circular":
        return _circular(g, x, pads)
    before = [pads[2 * axis] for axis in reversed(range(len(pads) // 2))]
    after = [pads[2 * axis + 1] for axis in reversed(range(len(pads) // 2))]
    rest = [0] * (x.rank - len(before))
    known = all(isinstance(n, int) for n in pads)
    shape = tuple(
        n + b + a if known and n is not None else None
        for n, b, a in zip(x.shape, rest + before, rest + after, strict=True)
    )
    shape = x.shape[: len(rest)] + shape[len(rest) :]
    sizes = g.sizes([*rest, *before, *rest, *after])
    given = [sizes] if mode != "constant" else [sizes, g.number(value or 0.0, x.dtype)]
    padded = g.op("Pad", x, *given, shape=shape, mode=_MODES[mode])
    if mode == "constant" and not value and known and min(pads) >= 0 and x.rank > 2:
        _remember(g, x, padded, before, after)
    return padded


def _remember(g: QdqGraph, x: Ref, padded: Ref, before: list[int], after: list[int]) -> None:
    """Zeros around a convolution's input can be its own padding."""
    missing = x.rank - 2 - len(before)
    if missing < 0:
        if any(before[:-missing]) or any(after[:-missing]):
            return
        before, after = before[-missing:], after[-missing:]
    zeros = [0] * max(missing, 0)
    g.pads[padded.name] = (x, (*zeros, *before, *zeros, *after))


def _circular(g: QdqGraph, x: Ref, pads: Sequence[Any]) -> Ref:
    """The other end of each axis, then the axis, then its beginning."""
    for place in range(len(pads) // 2):
        before, after = pads[2 * place : 2 * place + 2]
        if isinstance(before, Number) or isinstance(after, Number) or min(before, after) < 0:
            raise refuse(g, "circular padding that is computed or negative", "give fixed numbers")
        axis = x.rank - 1 - place
        parts = [sliced(g, x, axis, -before, _END)] if before else []
        parts += [x]
        parts += [sliced(g, x, axis, 0, after)] if after else []
        x = cat(g, parts, axis) if len(parts) > 1 else x
    return x


@translates("aten.constant_pad_nd")
def constant_pad(g: QdqGraph, x: Ref, pads: Sequence[Any], value: float = 0) -> Ref:
    """One number around."""
    return pad(g, x, pads, "constant", value)


@translates("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d")
def reflection_pad(g: QdqGraph, x: Ref, pads: Sequence[Any]) -> Ref:
    """Mirrored at the edge."""
    return pad(g, x, pads, "reflect")


@translates("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d")
def replication_pad(g: QdqGraph, x: Ref, pads: Sequence[Any]) -> Ref:
    """The edge repeated."""
    return pad(g, x, pads, "replicate")
