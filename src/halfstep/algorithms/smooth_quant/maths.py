"""The smoothing factors, in the symbols of the paper.

    Y = (X diag(s)^-1) (diag(s) W^T)    s_j = max |X_j|^alpha / max |W_j|^(1 - alpha)

X: (tokens, C); W: (O, C); j is a channel of the input.

Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large
Language Models", ICML 2023, https://arxiv.org/abs/2211.10438, equation 4.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def smoothing_factors(x_max: Tensor, w_max: Tensor, alpha: float) -> Tensor:
    """s: (C,); 1 for a channel that is always 0, or that no weight reads.

    x_max, w_max: (C,), the largest magnitudes of the activations and of the weights.

    >>> import torch
    >>> from halfstep.algorithms.smooth_quant.maths import smoothing_factors
    >>> smoothing_factors(torch.tensor([16.0, 1.0]), torch.tensor([1.0, 1.0]), 0.5)
    tensor([4., 1.])
    """
    s = x_max**alpha / w_max ** (1 - alpha)
    return torch.where((x_max > 0) & (w_max > 0) & s.isfinite(), s, 1.0)


def largest_inputs(weights: Sequence[Tensor]) -> Tensor:
    """max |W_j| over all layers that read the same X: (C,)."""
    return torch.stack([w.abs().amax(0) for w in weights]).amax(0)
