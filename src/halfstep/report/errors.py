"""How far values are from what they should be, as sums in float64."""

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from halfstep.report.records import Error

# Values are taken in pieces that stay in the cache while their float64 is worked on.
_PIECE = 1 << 16


def error_between(expected: Any, found: Any) -> Error | None:
    """The error of a tensor, or of a tuple of tensors; None for what cannot be compared.

        noise = sum of (y - y')^2, in float64, and so on for the other sums of ``Error``

    Two infinities of one sign, or two NaN, are equal, and in no sum; where just one of both values
    is not finite, the noise and the largest difference are infinite.

    >>> import torch
    >>> from halfstep.report.errors import error_between
    >>> error = error_between(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]))
    >>> error.noise, error.largest, round(error.sqnr, 4)
    (0.25, 0.5, 20.0)
    """
    pairs = list(_pairs(expected, found))
    if not pairs or any(y.shape != other.shape for y, other in pairs):
        return None
    return sum((_error(y, other) for y, other in pairs), Error())


def _pairs(expected: Any, found: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The float tensors of both."""
    if isinstance(expected, Tensor) and isinstance(found, Tensor):
        if expected.is_floating_point() and found.is_floating_point():
            yield expected.detach(), found.detach()
    elif isinstance(expected, tuple | list) and isinstance(found, tuple | list):
        for y, other in zip(expected, found, strict=False):
            yield from _pairs(y, other)


def _error(expected: Tensor, found: Tensor) -> Error:
    """Of two tensors of one shape, in flat pieces, in the order in which one lies in memory."""
    order = sorted(range(expected.ndim), key=expected.stride, reverse=True)
    both = (x.permute(order).reshape(-1).split(_PIECE) for x in (expected, found))
    return sum(map(_of_piece, *both), Error())


def _of_piece(expected: Tensor, found: Tensor) -> Error:
    y, other = expected.double(), found.double()
    error = _sums(y, other)
    if math.isfinite(error.noise) and math.isfinite(error.signal):
        return error
    return _with_odd(y, other)


def _sums(y: Tensor, other: Tensor) -> Error:
    difference = y - other
    return Error(
        signal=float(y.dot(y)),
        noise=float(difference.dot(difference)),
        product=float(y.dot(other)),
        power=float(other.dot(other)),
        largest=float(difference.abs_().amax()) if y.numel() else 0.0,
        elements=y.numel(),
    )


def _with_odd(y: Tensor, other: Tensor) -> Error:
    """The same where some values are not finite."""
    finite = y.isfinite() & other.isfinite()
    alike = (y == other) | (y.isnan() & other.isnan())
    sums = _sums(y[finite], other[finite])
    if bool((finite | alike).all()):
        return Error(
            sums.signal, sums.noise, sums.product, sums.power, sums.largest, elements=y.numel()
        )
    inf = math.inf
    return Error(sums.signal, inf, sums.product, sums.power, largest=inf, elements=y.numel())
