"""The shift of a bias, in the symbols of the paper.

    b' = b - (E[y~] - E[y])

y = W x + b in float, y~ = W~ x~ + b with the quantized weights, on what the quantized layers before
bring; E is the mean over samples and pixels, one for each output channel.

Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV
2019, https://arxiv.org/abs/1906.04721, section 4.2 and appendix D.
"""

from torch import Tensor


def corrected_bias(b: Tensor, mean: Tensor, mean_quantized: Tensor) -> Tensor:
    """b' (O,), from E[y] and E[y~].

    >>> import torch
    >>> from halfstep.algorithms.bias_correction import corrected_bias
    >>> corrected_bias(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([0.75]))
    tensor([0.7500])
    """
    return b - (mean_quantized - mean)
