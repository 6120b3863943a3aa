"""Quantize and come back, as a float tensor through which gradients flow."""

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.numerics import ops
from halfstep.numerics.checks import (
    Qparam,
    check_finite,
    check_float,
    check_steps,
    has_values,
    resolve_qparams,
    resolve_spec,
)
from halfstep.numerics.ranges import qparams_for_values
from halfstep.spec import QDType, QSpec


def fake_quantize(
    x: Tensor,
    spec: QSpec | QDType | torch.dtype,
    *,
    axis: int | None = None,
    scale: Qparam | None = None,
    zero_point: Qparam | None = None,
) -> Tensor:
    """x rounded to the grid of ``spec``, in x's shape, dtype and memory format.

        y = (clamp(rne(x / scale) + zero_point, qmin, qmax) - zero_point) * scale

    The gradient of x is 1 where no clamping took place and 0 elsewhere (straight-through). Scale
    and zero point are taken from x's range when not given. NaN stays NaN.

    Raises ``ArgumentError`` or ``ArgumentTypeError`` for qparams or an x that do not fit.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference", CVPR 2018.

    >>> import halfstep as hs, torch
    >>> x = torch.tensor([0.12, 0.5, 9.0], requires_grad=True)
    >>> y = hs.fake_quantize(x, hs.int8, scale=0.05, zero_point=0)
    >>> y.sum().backward()
    >>> [round(v, 4) for v in y.tolist()], x.grad
    ([0.1, 0.5, 6.35], tensor([1., 1., 0.]))
    """
    x = check_float(x, "fake_quantize")
    spec = resolve_spec(spec, axis, x.ndim)
    if scale is None:
        if zero_point is not None:
            raise ArgumentError("zero_point is given without scale: give both, or neither")
        step, offset = qparams_for_values(x.detach(), spec, nan="ignore")
    else:
        step, offset = resolve_qparams(x.shape, spec, scale, zero_point, x.device)
    if x.requires_grad and torch.is_grad_enabled():
        return ops.fake_quantize_with_mask(x, step, offset, spec.qmin, spec.qmax)[0]
    return ops.fake_quantize(x, step, offset, spec.qmin, spec.qmax)


def learnable_fake_quantize(
    x: Tensor,
    spec: QSpec | QDType | torch.dtype,
    *,
    scale: Tensor,
    zero_point: Tensor,
    grad_factor: float = 1.0,
) -> Tensor:
    """``fake_quantize`` whose scale and zero point are trained.

    ``scale`` and ``zero_point`` are float32 tensors of the full scale shape; the forward uses
    ``clamp(rne(zero_point), qmin, qmax)``. With v = x / scale the gradients, summed over the
    elements that share a scale and multiplied by ``grad_factor``, are

        inside:  d scale = rne(v) - v          d zero_point = 0
        outside: d scale = qbound - zero_point  d zero_point = -scale

    A scale from 2^-126 upwards and a finite zero point are asked for, and on the CPU, outside of
    traced programs, checked; elsewhere the look would make the program wait for the device.

    Raises ``ArgumentError`` or ``ArgumentTypeError`` for what does not fit, and for a spec in the
    float-zero-point form, whose zero point has no integer to stand for.

    Source: Esser et al., "Learned Step Size Quantization", ICLR 2020; Bhalgat et al., "LSQ+", 2020.

    >>> import halfstep as hs, torch
    >>> scale = torch.tensor([0.1], requires_grad=True)
    >>> spec = hs.QSpec(hs.int8)
    >>> x, zero = torch.tensor([0.26]), torch.zeros(1)
    >>> y = hs.learnable_fake_quantize(x, spec, scale=scale, zero_point=zero)
    >>> y.backward()
    >>> round(scale.grad.item(), 4)
    0.4
    """
    x = check_float(x, "learnable_fake_quantize")
    spec = resolve_spec(spec, None, x.ndim)
    if spec.float_zero_point:
        raise ArgumentError(
            f"{spec} has a float zero point, and a learnable one stands for an integer: leave out "
            "float_zero_point"
        )
    _check_learnable(x, spec, scale, zero_point)
    return ops.learnable_fake_quantize(x, scale, zero_point, spec.qmin, spec.qmax, grad_factor)


def _check_learnable(x: Tensor, spec: QSpec, scale: Tensor, zero_point: Tensor) -> None:
    wanted = spec.granularity.scale_shape(tuple(x.shape))
    for name, value in (("scale", scale), ("zero_point", zero_point)):
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"{name}={value!r} is not a tensor: give one that is trained")
        if tuple(value.shape) != wanted or value.dtype != torch.float32:
            raise ArgumentError(
                f"{name} has shape {tuple(value.shape)} and dtype {value.dtype}: a learnable one "
                f"for {spec.granularity} of a {tuple(x.shape)} tensor is float32 of shape {wanted}"
            )
    if scale.is_cpu and has_values(scale):
        check_steps(scale.detach())
        check_finite(zero_point.detach())
