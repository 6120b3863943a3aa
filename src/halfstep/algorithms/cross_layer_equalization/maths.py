"""Equal ranges on both sides of a channel, in the symbols of the paper.

    y = W2 f(W1 x + b1) = W2 S f(S^-1 (W1 x + b1))    for f(s x) = s f(x), s > 0

S is diagonal; r1, r2: (C,), the largest magnitudes of the weights around each channel.

Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV
2019, https://arxiv.org/abs/1906.04721, section 4.1. Weights: (O, I / groups, ...), those of a
transposed convolution (I, O / groups, ...).
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where a weight has its channels."""

    groups: int = 1
    transposed: bool = False


def ranges(w: Tensor, layout: Layout, *, of_outputs: bool) -> Tensor:
    """The largest magnitude of each output or input channel of a weight: (O,) or (I,).

    >>> import torch
    >>> from halfstep.algorithms.cross_layer_equalization.maths import Layout, ranges
    >>> w = torch.tensor([[1.0, -2.0], [0.5, 0.25]])
    >>> ranges(w, Layout(), of_outputs=True), ranges(w, Layout(), of_outputs=False)
    (tensor([2.0000, 0.5000]), tensor([1., 2.]))
    """
    blocks = _by_group(w.abs(), layout)
    kept_first = of_outputs != layout.transposed
    return blocks.amax((2, 3) if kept_first else (1, 3)).flatten()


def scaled(w: Tensor, s: Tensor, layout: Layout, *, of_outputs: bool) -> Tensor:
    """A weight whose output or input channels are multiplied by s: (O,) or (I,)."""
    blocks = _by_group(w, layout)
    kept_first = of_outputs != layout.transposed
    factors = (
        s.reshape(layout.groups, -1, 1, 1) if kept_first else s.reshape(layout.groups, 1, -1, 1)
    )
    return (blocks * factors).reshape(w.shape)


def _by_group(w: Tensor, layout: Layout) -> Tensor:
    """(groups, first axis / groups, second axis, rest): a group's channels on both sides."""
    return w.reshape(layout.groups, w.shape[0] // layout.groups, w.shape[1], -1)


def equalizing_scale(r1: Tensor, r2: Tensor) -> Tensor:
    """s = sqrt(r1 / r2), so that r1 / s = r2 * s; 1 where a range is 0.

    >>> import torch
    >>> from halfstep.algorithms.cross_layer_equalization.maths import equalizing_scale
    >>> equalizing_scale(torch.tensor([8.0, 0.0]), torch.tensor([2.0, 1.0]))
    tensor([2., 1.])
    """
    s = (r1 / r2).sqrt()
    return torch.where(s.isfinite() & (s > 0), s, 1.0)


def within(s: Tensor, limit: float) -> Tensor:
    """The scales, none further than a factor from their geometric mean; (C,).

    >>> import torch
    >>> from halfstep.algorithms.cross_layer_equalization.maths import within
    >>> within(torch.tensor([0.01, 1.0, 100.0]), 4.0)
    tensor([0.2500, 1.0000, 4.0000])
    """
    mean = s.log().mean().exp()
    return (s / mean).clamp(1 / limit, limit) * mean
