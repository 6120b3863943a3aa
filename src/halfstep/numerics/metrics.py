"""How far one tensor is from another."""

import math

import torch
from torch import Tensor


def sqnr(reference: Tensor, approximation: Tensor) -> float:
    """Signal-to-quantization-noise ratio in dB: 10 log10(sum x^2 / sum (x - x')^2).

    Infinite when the tensors are equal, and -infinite when only the reference is all zero.

    >>> import torch
    >>> round(sqnr(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])), 4)
    20.0
    """
    signal = reference.double().square().sum().item()
    noise = (reference.double() - approximation.double()).square().sum().item()
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


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


def cosine(reference: Tensor, approximation: Tensor) -> float:
    """The cosine of the angle between two tensors seen as vectors.

    1 when both are zero, 0 when only one is.

    >>> import torch
    >>> round(cosine(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])), 4)
    0.7071
    """
    a, b = reference.double().flatten(), approximation.double().flatten()
    if not (a.any() and b.any()):
        return float(bool(a.any() == b.any()))
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0, eps=0.0))
