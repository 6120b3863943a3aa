"""Every kind of observer by name, for tests of what they have in common."""

from collections.abc import Callable
from typing import Any

import torch

from halfstep.observe import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    PercentileObserver,
)
from halfstep.spec import PerChannel, PerGroup, QSpec, int8, uint4, uint8

KINDS: dict[str, Callable[..., Observer]] = {
    "min-max": MinMaxObserver,
    "moving average": MovingAverageObserver,
    "histogram": HistogramObserver,
    "percentile": PercentileObserver,
    "entropy": EntropyObserver,
}
# Those whose state does not depend on order.
FREE_OF_ORDER = tuple(kind for kind in KINDS if kind != "moving average")

SPECS = (
    QSpec(uint8),
    QSpec(int8, symmetric=True),
    QSpec(int8, PerChannel(1)),
    QSpec(uint4, PerGroup(1, 3)),
    QSpec(uint8, PerChannel(-1), float_zero_point=True),
)


def make(kind: str, spec: QSpec = SPECS[0], **settings: Any) -> Observer:
    """A fresh observer."""
    return KINDS[kind](spec, **settings)


def same_state(a: Observer, b: Observer) -> bool:
    """Whether all buffers are equal in every bit."""
    one, other = a.state_dict(), b.state_dict()
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)
