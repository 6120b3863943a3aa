"""Batch-norm re-estimation of one layer, as it is seen while a program runs over all batches."""

from collections.abc import Sequence

from torch import Tensor

from halfstep.algorithms.batch_norm_reestimation.maths import reestimated_fold
from halfstep.graph.moments import Moments

REESTIMATED = "batch norm re-estimated"


def reestimated(
    values: Sequence[Tensor], expected: Moments, bias: Tensor, *, axis: int
) -> tuple[list[Tensor], Tensor, Tensor]:
    """What a quantized layer brings under new statistics, the factors of its rows, and its bias.

    values: what it brings under the old ones, for each batch; expected: the moments of the float
    layer; bias: (O,), as it is; axis: that of the channels.

    >>> import torch
    >>> from halfstep.algorithms.batch_norm_reestimation import reestimated
    >>> from halfstep.graph.moments import Moments
    >>> expected = Moments.of([torch.tensor([[0.0], [4.0]])], axis=1)
    >>> given = [torch.tensor([[1.0], [2.0]])]
    >>> values, factors, bias = reestimated(given, expected, torch.zeros(1), axis=1)
    >>> values[0].flatten(), factors.item(), bias.item()
    (tensor([0., 4.]), 4.0, -4.0)
    """
    old = bias.detach().cpu().double()
    r, new = reestimated_fold(old, expected, Moments.of(values, axis))
    shaped = [
        _along(r, value, axis) * value + _along(new - r * old, value, axis) for value in values
    ]
    return shaped, r, new


def _along(channels: Tensor, value: Tensor, axis: int) -> Tensor:
    after = value.ndim - 1 - axis % value.ndim
    return channels.to(value).reshape(-1, *[1] * after)
