"""Comparisons that say what differs; each raises ``AssertionError``."""

import torch
from torch import Tensor

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(x: Tensor) -> Tensor:
    """The bits of a float tensor as integers, all NaN made equal; integers as they are."""
    if not x.is_floating_point():
        return x.to(torch.int64)
    nan = x.isnan()
    return x.contiguous().view(_BITS[x.element_size()]).masked_fill(nan, -1)


def assert_same_bits(actual: Tensor, expected: Tensor) -> None:
    """Equal dtype, shape and every bit; a NaN equals a NaN, and -0.0 differs from 0.0."""
    assert actual.dtype == expected.dtype, f"{actual.dtype} instead of {expected.dtype}"
    assert actual.shape == expected.shape, f"{actual.shape} instead of {expected.shape}"
    wrong = bits_of(actual) != bits_of(expected)
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.numel()} elements differ, first at "
        f"{wrong.nonzero()[0].tolist()}: {actual[wrong][0].item()} instead of "
        f"{expected[wrong][0].item()}"
    )


def assert_same_layout(actual: Tensor, x: Tensor) -> None:
    """The strides that ``torch.empty_like(x)`` has."""
    assert actual.stride() == torch.empty_like(x).stride()
