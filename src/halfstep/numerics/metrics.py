"""How far one tensor is from another."""

import math

from torch import Tensor


def sqnr(reference: Tensor, approximation: Tensor) -> float:
    """Signal-to-quantization-noise ratio in dB: 10 log10(sum x^2 / sum (x - x')^2).

    Infinite when the tensors are equal, -infinite when only the reference is all zero, NaN when
    either holds NaN.

    >>> import torch
    >>> round(sqnr(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])), 4)
    20.0
    """
    signal = reference.double().square().sum().item()
    return sqnr_of(signal, (reference.double() - approximation.double()).square().sum().item())


def sqnr_of(signal: float, noise: float) -> float:
    """SQNR in dB of two sums of squares: 10 log10(signal / noise).

    Infinite without noise, -infinite when there is noise and no signal, NaN when one of them is.

    >>> sqnr_of(25.0, 0.25)
    20.0
    """
    if math.isnan(signal) or math.isnan(noise):
        return math.nan
    if noise == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    # Not the logarithm of the quotient, which may leave the range of a float.
    return 10 * (math.log10(signal) - math.log10(noise))


def max_error_in_steps(reference: Tensor, approximation: Tensor, scale: Tensor) -> float:
    """The greatest |x - x'| / scale; half a step where nothing saturates.

    ``scale`` broadcasts to the tensors.

    >>> import torch
    >>> max_error_in_steps(torch.tensor([1.0, 2.1]), torch.tensor([1.0, 2.0]), torch.tensor(0.25))
    0.39999961853027344
    """
    if reference.numel() == 0:
        return 0.0
    error = (reference.double() - approximation.double()).abs() / scale.double()
    return float(error.max())
