"""Cross-layer equalization: neighbouring layers share their range, channel by channel."""

from halfstep.algorithms.cross_layer_equalization.binding import equalized

__all__ = ["equalized"]
