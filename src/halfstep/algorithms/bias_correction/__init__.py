"""Bias correction: the mean that quantizing adds to each channel is taken off its bias."""

from halfstep.algorithms.bias_correction.binding import BIAS_CORRECTED, corrected
from halfstep.algorithms.bias_correction.maths import corrected_bias

__all__ = ["BIAS_CORRECTED", "corrected", "corrected_bias"]
