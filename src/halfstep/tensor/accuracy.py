"""How far a quantized tensor is from what was quantized."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.numerics import ops
from halfstep.numerics.affine import spread
from halfstep.numerics.checks import check_float
from halfstep.numerics.metrics import max_error_in_steps, sqnr
from halfstep.spec import QSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationError:
    """The error of a quantized tensor against the floats that it came from.

    sqnr: signal-to-quantization-noise ratio in dB, ``10 log10(sum x^2 / sum (x - x')^2)``.
    max_steps: the greatest ``|x - x'| / scale``; at most 0.5 where nothing saturates.
    saturated: the share of values that would need a code beyond the format's bounds, 0 to 1.

    >>> import halfstep as hs, torch
    >>> x = torch.tensor([0.26, 1.0, 90.0])
    >>> error = hs.quantize(x, hs.int8, scale=0.5, zero_point=0).quantization_error(x)
    >>> round(error.max_steps, 2), round(error.saturated, 2)
    (53.0, 0.33)
    """

    sqnr: float
    max_steps: float
    saturated: float


def quantization_error(
    x: Tensor,
    qparams: tuple[Tensor, Tensor],
    codes: Tensor,
    spec: QSpec,
    dtype: torch.dtype,
) -> QuantizationError:
    """Compare the floats x with what the codes stand for.

    In float32, but where the dtype that they stand for overflows, as float16 does beyond 65504.
    """
    scale, zero_point = qparams
    x = check_float(x, "quantization_error")
    if x.shape != codes.shape:
        raise ArgumentError(
            f"x has shape {tuple(x.shape)}, and the quantized tensor {tuple(codes.shape)}: "
            "give the floats that were quantized"
        )
    values = ops.dequantize(codes, scale, zero_point, torch.float32)
    values = torch.where(values.to(dtype).isinf(), values.to(dtype).float(), values)
    _, inside = ops.fake_quantize_with_mask(x, scale, zero_point, spec.qmin, spec.qmax)
    return QuantizationError(
        sqnr=sqnr(x, values),
        max_steps=max_error_in_steps(x, values, spread(scale, x.shape)),
        saturated=1.0 - float(inside.double().mean()) if x.numel() else 0.0,
    )
