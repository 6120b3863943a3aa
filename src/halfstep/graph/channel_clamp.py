"""A clamp with bounds for each channel, as an operator of programs.

    halfstep::clamp_channels(x, low, high) -> y = min(max(x, low), high)

x: (N, C, ...); low, high: (C,), infinite where there is no bound. No model calls it: it is what a
clamp becomes when the channels before it get scales of their own.
"""

from typing import Any

import torch
from torch import Tensor

from halfstep.numerics.ops import LIBRARY

CLAMP_CHANNELS = "halfstep.clamp_channels.default"


def clamp_channels(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Every channel of x between its bounds.

    >>> import torch
    >>> from halfstep.graph.channel_clamp import clamp_channels
    >>> clamp_channels(torch.tensor([[-1.0, 9.0]]), torch.zeros(2), torch.tensor([6.0, 3.0]))
    tensor([[0., 3.]])
    """
    shape = (-1, *[1] * (x.ndim - 2))
    return x.clamp(low.reshape(shape), high.reshape(shape))


def _registered() -> Any:
    LIBRARY.define("clamp_channels(Tensor x, Tensor low, Tensor high) -> Tensor")
    LIBRARY.impl("clamp_channels", clamp_channels, "CompositeImplicitAutograd")
    return torch.ops.halfstep.clamp_channels.default


OPERATOR = _registered()
