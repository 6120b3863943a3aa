"""What is found by channel: ranges, which are always zero, and which stand out."""

from collections.abc import Sequence

import torch
from torch import Tensor

from halfstep.numerics import ops

# So many times the median channel's range stands out.
OUTLIER = 8.0


def channel_ranges(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The least and the greatest finite value of each channel along an axis; float32.

    >>> import torch
    >>> from halfstep.report.channels import channel_ranges
    >>> low, high = channel_ranges(torch.tensor([[1.0, -2.0], [3.0, 4.0]]), 1)
    >>> low.tolist(), high.tolist()
    ([1.0, -2.0], [3.0, 4.0])
    """
    values = x.to(torch.float32)
    shape = [size if dim == axis else 1 for dim, size in enumerate(x.shape)]
    low, high = ops.min_max(values, shape)
    if not bool((low.isfinite() & high.isfinite()).all()):
        finite = values.isfinite()
        low, _ = ops.min_max(values.masked_fill(~finite, torch.inf), shape)
        _, high = ops.min_max(values.masked_fill(~finite, -torch.inf), shape)
        unseen = low > high
        low, high = low.masked_fill(unseen, 0.0), high.masked_fill(unseen, 0.0)
    return low.flatten(), high.flatten()


def dead_channels(low: Sequence[float], high: Sequence[float]) -> tuple[int, ...]:
    """The channels whose every value is zero.

    >>> from halfstep.report.channels import dead_channels
    >>> dead_channels([0.0, -1.0], [0.0, 0.0])
    (0,)
    """
    pairs = enumerate(zip(low, high, strict=True))
    return tuple(place for place, (least, most) in pairs if least == most == 0)


def outlier_channels(low: Sequence[float], high: Sequence[float]) -> tuple[int, ...]:
    """The channels whose largest magnitude is at least ``OUTLIER`` times the median channel's.

    Channels of zeros are in no median.

    >>> from halfstep.report.channels import outlier_channels
    >>> outlier_channels([-1.0, -1.0, -8.0], [1.0, 0.9, 1.0])
    (2,)
    """
    spans = [max(abs(least), abs(most)) for least, most in zip(low, high, strict=True)]
    seen = sorted(span for span in spans if span)
    if not seen:
        return ()
    bound = OUTLIER * seen[len(seen) // 2]
    return tuple(place for place, span in enumerate(spans) if span >= bound)
