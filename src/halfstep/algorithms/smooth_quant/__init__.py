"""SmoothQuant: outlier channels of activations move into the weights that read them."""

from halfstep.algorithms.smooth_quant.binding import smoothed
from halfstep.algorithms.smooth_quant.sites import Site, sites

__all__ = ["Site", "sites", "smoothed"]
