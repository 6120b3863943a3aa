"""Bias correction of one layer, as it is seen while a program runs over all batches."""

from collections.abc import Sequence

from torch import Tensor

from halfstep.algorithms.bias_correction.maths import corrected_bias
from halfstep.graph.moments import Moments

BIAS_CORRECTED = "bias corrected"


def corrected(
    values: Sequence[Tensor], expected: Moments, bias: Tensor, *, axis: int
) -> tuple[list[Tensor], Tensor]:
    """What a quantized layer brings with its bias corrected, for each batch, and that bias.

    values: what it brings without; expected: the moments of the float layer; bias: (O,), as it is;
    axis: that of the channels.

    >>> import torch
    >>> from halfstep.algorithms.bias_correction import corrected
    >>> from halfstep.graph.moments import Moments
    >>> expected = Moments.of([torch.tensor([[1.0], [2.0]])], axis=1)
    >>> values, bias = corrected([torch.tensor([[2.0], [3.0]])], expected, torch.zeros(1), axis=1)
    >>> values[0].flatten(), bias
    (tensor([1., 2.]), tensor([-1.], dtype=torch.float64))
    """
    found = Moments.of(values, axis)
    new = corrected_bias(bias.detach().cpu().double(), expected.mean, found.mean)
    shift = expected.mean - found.mean
    return [value + _along(shift, value, axis) for value in values], new


def _along(channels: Tensor, value: Tensor, axis: int) -> Tensor:
    after = value.ndim - 1 - axis % value.ndim
    return channels.to(value).reshape(-1, *[1] * after)
