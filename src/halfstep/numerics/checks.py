"""What the caller gives, checked and brought into the one form that the operators take.

Operators want scale (float32) and zero point (int32 or float32) with all of x's dimensions; people
give numbers, lists, or one value per channel. Every refusal names the argument, the value, what is
allowed and the nearest right reading.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.numerics.affine import FLOAT8
from halfstep.numerics.qparams import SMALLEST_SCALE
from halfstep.spec import PerChannel, PerTensor, QDType, QSpec

Qparam: TypeAlias = float | Sequence[float] | Tensor


def has_values(tensor: Tensor) -> bool:
    """Whether values can be looked at: not while a program is traced, and not on ``meta``.

    >>> has_values(torch.ones(2)), has_values(torch.ones(2, device="meta"))
    (True, False)
    """
    return not (torch.compiler.is_compiling() or tensor.is_meta or isinstance(tensor, FakeTensor))


def check_float(x: Any, verb: str) -> Tensor:
    """x, when it is a real floating-point tensor; otherwise an error that says where x belongs."""
    if isinstance(x, torch.nn.Module):  # noqa: TID251  # only to say where it belongs
        raise ArgumentTypeError(
            f"{verb} takes a tensor, and x is a module ({type(x).__name__}): quantize its tensors "
            "one by one; whole models go to hs.ptq.quantize"
        )
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(
            f"{verb} takes a torch tensor, and x is a {type(x).__name__}: wrap it in torch.tensor()"
        )
    if not x.is_floating_point():
        advice = (
            "quantize x.real and x.imag"
            if x.is_complex()
            else "use hs.from_int_repr for integers that are quantized already, or x.float()"
        )
        if x.is_quantized:
            advice = "use x.dequantize(), or hs.from_int_repr(x.int_repr(), ...) for its integers"
        raise ArgumentTypeError(f"{verb} takes floats, and x is {x.dtype}: {advice}")
    if x.layout != torch.strided or x.is_nested:
        kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise ArgumentTypeError(
            f"{verb} takes dense tensors, and x is {kind}: convert it, or quantize its parts"
        )
    if x.dtype not in _FLOATS:
        raise ArgumentTypeError(f"{verb} cannot read {x.dtype}: use {', '.join(map(str, _FLOATS))}")
    return x


_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, *sorted(FLOAT8, key=str))


def resolve_spec(spec: "QSpec | QDType | torch.dtype", axis: int | None, ndim: int) -> QSpec:
    """The QSpec meant by ``spec`` and ``axis``, its axes counted from the front."""
    if isinstance(spec, QSpec):
        if axis is not None:
            raise ArgumentError(
                f"axis={axis} is given beside {spec}, which says its granularity itself: "
                "leave out axis, or give only the dtype"
            )
        return spec.normalized(ndim)
    dtype = QDType.of(spec)
    return QSpec(dtype, PerTensor() if axis is None else PerChannel(axis)).normalized(ndim)


def check_codes(ints: Tensor, spec: QSpec) -> None:
    """Raise ``ArgumentError`` where an integer is not a code of ``spec``."""
    if not (has_values(ints) and ints.numel()):
        return
    # Not every integer dtype has min and max, and int64 lacks uint64's upper half. Beyond 2^53
    # float64 rounds, but nothing so large is a code.
    wide = torch.float64 if ints.dtype == torch.uint64 else torch.int64
    narrow = ints if ints.dtype in _WITH_MIN_AND_MAX else ints.to(wide)
    low, high = (int(bound) for bound in torch.aminmax(narrow))
    if low < spec.qmin or high > spec.qmax:
        raise ArgumentError(
            f"ints run from {low} to {high}, and {spec} holds [{spec.qmin}, {spec.qmax}]: "
            "choose a wider dtype"
        )


_WITH_MIN_AND_MAX = (torch.int8, torch.uint8, torch.int16, torch.int32)


def resolve_qparams(
    shape: torch.Size, spec: QSpec, scale: Qparam, zero_point: Qparam | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Scale and zero point in the form that the operators take, for a tensor of ``shape``."""
    return (
        resolve_scale(shape, spec, scale, device),
        resolve_zero_point(shape, spec, zero_point, device),
    )


def resolve_scale(shape: torch.Size, spec: QSpec, scale: Qparam, device: torch.device) -> Tensor:
    """``scale`` as float32 with all dimensions, each value a normal positive number."""
    given = _as_tensor(scale, "scale", device)
    given = given if given.is_floating_point() else given.double()
    # A copy: a later change of the caller's tensor must not reach what was quantized with it.
    shaped = _to_scale_shape(given.detach(), "scale", shape, spec)
    resolved = shaped.to(torch.float32, copy=True)
    if has_values(resolved):
        check_steps(resolved, given)
    return resolved


def check_steps(scale: Tensor, given: Tensor | None = None) -> None:
    """Raise ``ArgumentError`` where a float32 scale is no normal positive number.

    given: what the scale was made of, to be named in the error as the caller wrote it.
    """
    low, high = _bounds(scale)
    if not (low >= SMALLEST_SCALE and high < math.inf):
        good = (scale >= SMALLEST_SCALE) & (scale < math.inf)
        given = scale if given is None else given
        value = given.flatten()[_first(~good, given)].item()
        raise ArgumentError(
            f"scale={value:g} is not a step: allowed are finite numbers from "
            f"{SMALLEST_SCALE:g} (the least normal float32) upwards"
        )


def resolve_zero_point(
    shape: torch.Size, spec: QSpec, zero_point: Qparam | None, device: torch.device
) -> Tensor:
    """``zero_point`` as int32 (or float32) with all dimensions, each value a code of ``spec``."""
    if zero_point is None:
        if not spec.symmetric:
            raise ArgumentError(
                f"zero_point is missing: {spec} is not symmetric, so give zero_point= beside "
                "scale= (0 when there is no offset)"
            )
        zero_point = 0
    given = _as_tensor(zero_point, "zero_point", device).detach()
    resolved = _to_scale_shape(given, "zero_point", shape, spec)
    if has_values(resolved):
        _check_zero_point(given, spec)
    return resolved.to(spec.zero_point_dtype, copy=True)


def _check_zero_point(given: Tensor, spec: QSpec) -> None:
    if spec.float_zero_point:
        check_finite(given)
        return
    values = given.double()
    qmin, qmax = (0, 0) if spec.symmetric else (spec.qmin, spec.qmax)
    allowed = f"{qmin} to {qmax} for {spec.dtype}"
    if spec.symmetric:
        allowed = "0, since the format is symmetric"
    fractional = values.isfinite() & (values != values.round())
    hint = "is fractional: a zero point is an integer code (are scale and zero_point swapped?)"
    _refuse_zero_point(given, fractional, f"{hint}; allowed is {allowed}")
    outside = ~((values >= qmin) & (values <= qmax))
    _refuse_zero_point(given, outside, f"is outside the format: allowed is {allowed}")


def check_finite(zero_point: Tensor) -> None:
    """Raise ``ArgumentError`` where a float zero point is not finite as a float32."""
    values = zero_point.float()
    if not all(map(math.isfinite, _bounds(values))):
        why = "is not finite: allowed are finite float32 numbers"
        _refuse_zero_point(zero_point, ~values.isfinite(), why)


def _bounds(values: Tensor) -> tuple[float, float]:
    """The least and greatest value, NaN if one is, in the fewest steps: training waits for it."""
    if values.numel() < 2:
        value = values.item() if values.numel() else 1.0
        return value, value
    low, high = torch.aminmax(values)
    return low.item(), high.item()


def _refuse_zero_point(given: Tensor, bad: Tensor, why: str) -> None:
    if bool(bad.any()):
        raise ArgumentError(f"zero_point={given.flatten()[_first(bad, given)].item()} {why}")


def _first(bad: Tensor, given: Tensor) -> int:
    """The position of the first bad value in what was given."""
    return int(bad.flatten().nonzero()[0]) if bad.numel() == given.numel() else 0


def _as_tensor(value: Any, name: str, device: torch.device) -> Tensor:
    try:
        given = torch.as_tensor(value, device=device)
        if given.is_floating_point() and not isinstance(value, Tensor):
            given = torch.as_tensor(value, dtype=torch.float64, device=device)  # all digits
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentTypeError(
            f"{name}={value!r} is not a number of 64 bits, a list of them or a tensor"
        ) from None
    if given.is_complex() or given.dtype == torch.bool:
        raise ArgumentTypeError(f"{name} is {given.dtype}: give real numbers")
    return given


def _to_scale_shape(value: Tensor, name: str, shape: torch.Size, spec: QSpec) -> Tensor:
    """Bring a number, one value per channel, or the full shape to the shape of ``scale``."""
    wanted = spec.granularity.scale_shape(tuple(shape))
    if tuple(value.shape) == wanted:
        return value
    if value.numel() == 1:
        return value.reshape(()).expand(wanted).contiguous()
    if isinstance(spec.granularity, PerChannel) and value.shape == (math.prod(wanted),):
        return value.reshape(wanted)
    raise ArgumentError(_shape_message(value, name, shape, spec, wanted))


def _shape_message(
    value: Tensor, name: str, shape: torch.Size, spec: QSpec, wanted: tuple[int, ...]
) -> str:
    count = value.numel() if value.ndim == 1 else f"shape {tuple(value.shape)}"
    what = f"{count} {name}s" if value.ndim == 1 else f"{name} has {count}"
    others = [dim for dim, size in enumerate(shape) if value.ndim == 1 and size == value.numel()]
    hint = "".join(f"; axis {dim} has {shape[dim]}" for dim in others)
    if isinstance(spec.granularity, PerChannel) and value.ndim == 1:
        axis = spec.granularity.axis
        return f"{what}, but axis {axis} has {shape[axis]} channels{hint or ': give one for each'}"
    if isinstance(spec.granularity, PerTensor):
        way = f"for one per channel pass axis={others[0]}" if others else "give one number"
        return f"{what}, but per-tensor quantization has one{hint}: {way}"
    form = f"{spec.granularity} of a {tuple(shape)} tensor"
    return f"{what}, but {form} needs shape {wanted} or one number"
