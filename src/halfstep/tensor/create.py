"""The ways into and out of a QTensor: quantize, from_int_repr, dequantize."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError, HalfstepWarning
from halfstep.numerics import ops
from halfstep.numerics.checks import (
    Qparam,
    check_codes,
    check_float,
    has_values,
    resolve_qparams,
    resolve_spec,
)
from halfstep.numerics.ranges import NAN_POLICIES, qparams_for_values
from halfstep.spec import QDType, QSpec
from halfstep.tensor.qtensor import QTensor


def quantize(
    x: Tensor,
    spec: QSpec | QDType | torch.dtype,
    *,
    axis: int | None = None,
    scale: Qparam | None = None,
    zero_point: Qparam | None = None,
    nan: str = "raise",
) -> QTensor:
    """Quantize a float tensor: every value to the nearest of the format's steps.

        q = clamp(rne(x / scale) + zero_point, qmin, qmax)

    spec: a ``QSpec``, or an integer dtype, which with ``axis`` means PerChannel(axis).
    scale, zero_point: numbers, one value per channel, or tensors of the full scale shape; taken
        from x's range when left out.
    nan: ``"raise"``, or ``"ignore"`` to quantize each NaN as 0, with a warning that counts them.

    The result has x's shape, dtype, device and memory format. Infinities saturate. x is computed
    in float32 whatever its dtype, so x / scale has 24 bits.

    Raises ``ArgumentError`` or ``ArgumentTypeError`` for what does not fit, and ``NonFiniteError``
    for NaN.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference", CVPR 2018.

    >>> import halfstep as hs, torch
    >>> x = torch.tensor([[-1.0, 0.0, 1.5], [0.0, 6.0, 10.2]])
    >>> q = hs.quantize(x, hs.uint8, axis=0)
    >>> q.int_repr()
    tensor([[  0, 102, 255],
            [  0, 150, 255]], dtype=torch.uint8)
    >>> q.q_per_channel_zero_points()
    tensor([102,   0], dtype=torch.int32)
    """
    if isinstance(x, QTensor):
        raise ArgumentTypeError(
            f"x is quantized already ({x.spec}): quantize x.dequantize() for another format"
        )
    x = check_float(x, "quantize").detach()
    spec = resolve_spec(spec, axis, x.ndim)
    if nan not in NAN_POLICIES:
        raise ArgumentError(f"nan={nan!r} is not a policy: use one of {NAN_POLICIES}")
    if scale is None:
        if zero_point is not None:
            raise ArgumentError("zero_point is given without scale: give both, or neither")
        step, offset = qparams_for_values(x, spec, nan)
    else:
        step, offset = resolve_qparams(x.shape, spec, scale, zero_point, x.device)
    # Qparams from x's own range have seen every value: NaN has been refused there.
    check = nan == "raise" and scale is not None
    ints = ops.quantize(x, step, offset, spec.qmin, spec.qmax, spec.dtype.storage, check)
    if nan == "ignore":
        _report_nan(x)
    return QTensor.from_parts(ints, step, offset, spec, x.dtype)


def _report_nan(x: Tensor) -> None:
    count = int(x.float().isnan().sum()) if has_values(x) else 0
    if count:
        warnings.warn(
            f"{count} of {x.numel()} values are NaN and were quantized as 0",
            HalfstepWarning,
            stacklevel=3,
        )


def from_int_repr(
    ints: Tensor,
    spec: QSpec | QDType | torch.dtype,
    *,
    scale: Qparam,
    zero_point: Qparam | None = None,
    axis: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> QTensor:
    """A quantized tensor from its integers: the inverse of ``int_repr()``.

    ints: any integer dtype, every value a code of the format; they are copied.
    spec, axis, scale, zero_point: as for ``quantize``.
    dtype: the float dtype that the tensor stands for.

    Raises ``ArgumentError`` or ``ArgumentTypeError`` for what does not fit.

    >>> import halfstep as hs, torch
    >>> q = hs.from_int_repr(torch.tensor([0, 10, 20]), hs.uint8, scale=0.5, zero_point=10)
    >>> q.dequantize()
    tensor([-5.,  0.,  5.])
    """
    if isinstance(ints, QTensor) or not isinstance(ints, Tensor) or _is_float(ints):
        given = ints.dtype if isinstance(ints, Tensor) else type(ints).__name__
        raise ArgumentTypeError(
            f"from_int_repr takes a tensor of integers, and ints is {given}: "
            "use hs.quantize for floats, and q.int_repr() of a quantized tensor"
        )
    _check_stands_for(dtype)
    spec = resolve_spec(spec, axis, ints.ndim)
    step, offset = resolve_qparams(ints.shape, spec, scale, zero_point, ints.device)
    check_codes(ints, spec)
    codes = torch.empty_like(ints, dtype=spec.dtype.storage).copy_(ints)
    return QTensor.from_parts(codes, step, offset, spec, dtype)


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool


def _check_stands_for(dtype: Any) -> None:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ArgumentTypeError(
            f"dtype={dtype!r} is not a float dtype: it is what the tensor stands for, such as "
            "torch.float32"
        )


def dequantize(
    ints: Tensor | Sequence[Any],
    *,
    scale: Qparam | None = None,
    zero_point: Qparam | None = None,
    axis: int | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor | list[Any]:
    """The floats that integers stand for: ``x' = (q - zero_point) * scale``.

    ints: a tensor of int8, uint8, int16, uint16 or int32 with ``scale=`` and ``zero_point=``; or a
        quantized tensor, which knows its own; or a list of either, also of lists, of which every
        tensor is taken with the other arguments.
    dtype: of the floats; what a quantized tensor stands for, else float32, when left out.

    Raises ``ArgumentError`` or ``ArgumentTypeError`` for what does not fit.

    >>> import halfstep as hs, torch
    >>> hs.dequantize(torch.tensor([-1, 0, 3], dtype=torch.int8), scale=0.5, zero_point=-1)
    tensor([0.0000, 0.5000, 2.0000])
    """
    if dtype is not None:
        _check_stands_for(dtype)
    if isinstance(ints, list | tuple):
        return [
            dequantize(one, scale=scale, zero_point=zero_point, axis=axis, dtype=dtype)
            for one in ints
        ]
    if isinstance(ints, QTensor):
        if scale is not None or zero_point is not None or axis is not None:
            raise ArgumentError(
                "a quantized tensor knows its own scale, zero_point and axis: leave them out, or "
                "pass q.int_repr()"
            )
        return (ints if dtype is None else ints.to(dtype)).dequantize()
    if not isinstance(ints, Tensor):
        raise ArgumentTypeError(
            f"dequantize takes a tensor of integers, a quantized tensor or a list of them, and "
            f"this is a {type(ints).__name__}: wrap it in torch.tensor()"
        )
    if scale is None:
        raise ArgumentError("scale is missing: plain integers need scale= and zero_point=")
    spec = resolve_spec(ints.dtype, axis, ints.ndim)
    step, offset = resolve_qparams(ints.shape, spec, scale, zero_point, ints.device)
    return ops.dequantize(ints, step, offset, dtype or torch.float32)
