"""Observers that keep two numbers for each scale."""

from typing import Any

import torch
from torch import Tensor

from halfstep.observe.batch import moving_average, weighted_mean
from halfstep.observe.by_hand import Bound
from halfstep.observe.observer import Observer
from halfstep.observe.settings import check_share
from halfstep.spec import QDType, QSpec


class MinMaxObserver(Observer):
    """The range from the least to the greatest value seen.

        lo = min(x)    hi = max(x)    for each scale

    The state does not depend on batch sizes or order, in any bit. Raises as ``Observer`` does.

    >>> import halfstep as hs, torch
    >>> observer = hs.MinMaxObserver(hs.QSpec(hs.uint8, hs.PerChannel(1)))
    >>> for batch in torch.tensor([[[0.0, -1.0]], [[2.55, 4.1]]]):
    ...     _ = observer(batch)
    >>> observer
    MinMaxObserver(QSpec(uint8, PerChannel(axis=1)), count=4, range=2 within [-1, 4.1])
    >>> observer.qparams()
    (tensor([[0.0100, 0.0200]]), tensor([[ 0, 50]], dtype=torch.int32))
    """


class MovingAverageObserver(Observer):
    """A range that follows the data, for training: the latest batches weigh most.

        lo <- lo + momentum * (min(x) - lo)    hi <- hi + momentum * (max(x) - hi)

    The first batch sets lo and hi. Unlike all other observers this one depends on the order and the
    size of the batches, by definition. So ``merge`` cannot equal one pass over both data: it is the
    mean of both averages, weighted by ``count``, which is what ranks that train in parallel want.

    Raises ``ArgumentError`` for a momentum outside (0, 1], ``ArgumentTypeError`` for what is no
    number, and as ``Observer`` does.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference", CVPR 2018, section 3.1.

    >>> import halfstep as hs, torch
    >>> observer = hs.MovingAverageObserver(hs.int8, momentum=0.5)
    >>> for peak in (1.0, 3.0):
    ...     _ = observer(torch.tensor([0.0, peak]))
    >>> observer.max_val
    tensor([2.])
    """

    def __init__(
        self,
        spec: QSpec | QDType | torch.dtype,
        *,
        momentum: float = 0.01,
        nonfinite: str = "raise",
    ) -> None:
        super().__init__(spec, nonfinite=nonfinite)
        self.momentum = check_share(momentum, "momentum", 1, "the weight of a batch")

    @property
    def settings(self) -> tuple[Any, ...]:
        """What must be equal in observers that are merged."""
        return (self.spec, self.momentum)

    def _take(self, x: Tensor, lo: Tensor, hi: Tensor, bad: Tensor | None) -> None:
        least, most = self.min_val, self.max_val
        least.copy_(moving_average(least, lo, self.momentum))
        most.copy_(moving_average(most, hi, self.momentum))

    def _merge(self, other: Observer) -> None:
        weights = self.values_seen, other.values_seen
        self.min_val.copy_(weighted_mean(self.min_val, other.min_val, *weights))
        self.max_val.copy_(weighted_mean(self.max_val, other.max_val, *weights))


class FixedObserver(Observer):
    """A range that is known beforehand, such as [0, 1] behind a sigmoid.

    ``lo`` and ``hi`` are numbers or one value for each channel. Data pass through unread, NaN
    included, and are counted; ``reset`` comes back to [lo, hi]. Before data scale has the shape ()
    or (C,), afterwards all dimensions.

    Raises ``ArgumentError`` as ``Observer.set_range`` does.

    >>> import halfstep as hs, torch
    >>> observer = hs.FixedObserver(hs.uint8, 0.0, 1.0)
    >>> _ = observer(torch.rand(2, 3))
    >>> observer.qparams()
    (tensor([[0.0039]]), tensor([[0]], dtype=torch.int32))
    """

    def __init__(self, spec: QSpec | QDType | torch.dtype, lo: Bound, hi: Bound) -> None:
        super().__init__(spec)
        self.set_range(lo, hi)
        self.given = self.hand_lo.tolist(), self.hand_hi.tolist()

    def reset(self) -> None:
        """Forget all data and any other range set by hand."""
        super().reset()
        self.set_range(*self.given)

    @property
    def settings(self) -> tuple[Any, ...]:
        """What must be equal in observers that are merged."""
        return (self.spec, self.given)

    def _observe(self, x: Tensor) -> None:
        if x.numel():
            self._fit(self.spec.granularity.scale_shape(tuple(x.shape)))
            self.values_seen += x.numel()
