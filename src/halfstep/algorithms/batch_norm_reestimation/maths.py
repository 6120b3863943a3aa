"""A batch norm with other statistics, after it was folded into the layer before it.

    y  = gamma (u - mean) / std + beta          the norm, as folded: y = W x + b
    y' = gamma (u~ - mean') / std' + beta       with the statistics of u~, under quantized weights

u~ is the norm's input as the quantized weights make it. Where gamma and beta are the spread and the
mean of y itself, which is what they are on the norm's own data,

    y' = r (y~ - E[y~]) + E[y]    r = sqrt(Var[y] / Var[y~])

and taking E[y] and Var[y] from the float layer on the data at hand leaves out what those data have
of their own. So the rows of W are multiplied by r, and the bias becomes b'.

Source: Nagel et al., "A White Paper on Neural Network Quantization", 2021,
https://arxiv.org/abs/2106.08295, section 4.2; Sun et al., "Hybrid 8-bit Floating Point Training and
Inference for Deep Neural Networks", NeurIPS 2019.
"""

import torch
from torch import Tensor

from halfstep.graph.moments import Moments


def reestimated_fold(b: Tensor, expected: Moments, found: Moments) -> tuple[Tensor, Tensor]:
    """r and b' = r (b - E[y~]) + E[y], both (O,) in float64; r is 1 where a channel is constant.

    >>> import torch
    >>> from halfstep.algorithms.batch_norm_reestimation import reestimated_fold
    >>> from halfstep.graph.moments import Moments
    >>> expected = Moments.of([torch.tensor([[0.0], [4.0]])], axis=1)
    >>> found = Moments.of([torch.tensor([[1.0], [2.0]])], axis=1)
    >>> reestimated_fold(torch.zeros(1), expected, found)
    (tensor([4.], dtype=torch.float64), tensor([-4.], dtype=torch.float64))
    """
    r = (expected.var / found.var).sqrt()
    r = torch.where((expected.var > 0) & (found.var > 0) & r.isfinite(), r, 1.0)
    return r, r * (b.detach().cpu().double() - found.mean) + expected.mean
