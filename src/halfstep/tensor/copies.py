"""The same values in another place: detach, clone, to, copy_, and new tensors of the same shape."""

from typing import Any

import torch
from torch import Tensor

from halfstep.errors import MutationError
from halfstep.numerics.checks import has_values
from halfstep.tensor.dispatch import operator
from halfstep.tensor.moves import Move, view
from halfstep.tensor.qtensor import QTensor

aten = torch.ops.aten


def _same(q: QTensor, move: Move, dtype: torch.dtype | None = None) -> QTensor:
    """The inner tensors moved, to stand for q's dtype or another."""
    codes, scale, zero_point = map(move, q.stored())
    shape = q.shape if q.spec.dtype.is_packed else None
    return QTensor(codes, scale, zero_point, q.spec, dtype=dtype or q.dtype, shape=shape)


@operator(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def detach(func: Any, q: QTensor) -> Any:
    """The same tensor without history."""

    def result() -> QTensor:
        same = _same(q, lambda t: t.detach())
        same.is_apart = q.is_apart
        return same

    return view(func, q, (), result, shares=True)


@operator(aten.clone.default)
def clone(func: Any, q: QTensor, *, memory_format: torch.memory_format | None = None) -> QTensor:
    """A copy; also the way to another memory format."""
    if q.spec.dtype.is_packed:
        if memory_format not in (None, torch.preserve_format, torch.contiguous_format):
            q.ints.clone(memory_format=memory_format)  # packed codes keep theirs; torch checks
        return _same(q, lambda t: t.clone())
    ints = q.ints.clone(memory_format=memory_format)
    return QTensor(ints, q.scale.clone(), q.zero_point.clone(), q.spec, dtype=q.dtype)


@operator(aten._to_copy.default)
def to_copy(func: Any, q: QTensor, *, dtype: torch.dtype | None = None, **where: Any) -> Any:
    """Another device, or another float dtype to stand for; the integers stay as they are."""
    if dtype is not None and not dtype.is_floating_point:
        return NotImplemented
    kept = {name: value for name, value in where.items() if name in ("device", "non_blocking")}
    made = _same(q, lambda t: t.to(**kept, copy=True), dtype)
    layout = where.get("memory_format") or torch.preserve_format
    return made if layout == torch.preserve_format else made.contiguous(memory_format=layout)


@operator(aten.copy_.default)
def copy_(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:  # noqa: FBT001, FBT002 (aten's signature)
    """Between two tensors of one format: the integers and their scales."""
    if not isinstance(target, QTensor):
        return NotImplemented
    matching = isinstance(source, QTensor) and target.spec == source.spec
    if not matching or target.shape != source.shape:
        what = source.spec if isinstance(source, QTensor) else f"{source.dtype} values"
        raise MutationError(
            f"{what} cannot be copied into a tensor quantized as {target.spec}: quantize them "
            "first with the same spec and shape, or load with assign=True"
        )
    _refuse_part(target, source)
    codes, *qparams = zip(target.stored(), source.stored(), strict=True)
    codes[0].copy_(codes[1], non_blocking)
    for into, value in qparams:
        if _is_whole(into):  # else it holds the same numbers already
            into.copy_(value, non_blocking)
    return target


def _refuse_part(target: QTensor, source: QTensor) -> None:
    """Raise where the write would be lost, or change what the rest of a larger tensor means."""
    if target.is_apart:
        raise MutationError(
            f"a view of a tensor quantized as {target.spec} has integers of its own, since they "
            "are packed, so a copy into it would not reach that tensor: copy into the whole, or "
            "clone() the view first"
        )
    if all(map(_is_whole, target.stored())) or _same_qparams(target, source):
        return
    raise MutationError(
        f"the target is part of a larger tensor quantized as {target.spec}, whose scale and zero "
        "point the rest needs, and the source has others: clone() the part first, copy integers "
        "of the same scale and zero point, or load with assign=True"
    )


def _is_whole(part: Tensor) -> bool:
    """Whether a tensor is all that its memory holds."""
    return part.untyped_storage().nbytes() == part.numel() * part.itemsize


def _same_qparams(target: QTensor, source: QTensor) -> bool:
    pairs = list(zip(target.qparams(), source.qparams(), strict=True))
    return all(has_values(a) and has_values(b) and torch.equal(a, b) for a, b in pairs)


@operator(
    *(
        getattr(aten, name).default
        for name in (
            "empty_like",
            "full_like",
            "new_empty",
            "new_empty_strided",
            "new_full",
            "new_ones",
            "new_zeros",
            "ones_like",
            "rand_like",
            "randn_like",
            "zeros_like",
        )
    )
)
def new_like(func: Any, q: QTensor, *args: Any, **kwargs: Any) -> Tensor:
    """New floats that take shape, dtype, device and layout from q, and nothing of its values."""
    dtype = kwargs.pop("dtype", None) or q.dtype
    made: Tensor = func(_outline(q), *args, dtype=dtype, **kwargs)
    return made


def _outline(q: QTensor) -> Tensor:
    """A plain tensor of q's shape and, where integers are not packed, strides."""
    if q.spec.dtype.is_packed:
        return torch.empty((), dtype=torch.uint8, device=q.device).expand(q.shape)
    return q.stored()[0]
