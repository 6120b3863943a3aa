"""Batch-norm re-estimation: statistics as they are under quantized weights."""

from halfstep.algorithms.batch_norm_reestimation.binding import REESTIMATED, reestimated
from halfstep.algorithms.batch_norm_reestimation.maths import reestimated_fold

__all__ = ["REESTIMATED", "reestimated", "reestimated_fold"]
