"""How far values are from what they should be, as sums in float64."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from halfstep.report.records import Error

# Values are taken in pieces that stay in the cache, and for which torch starts no threads: waking
# them takes longer than the work.
_PIECE = 1 << 15


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
    pieces = (piece for pair in pairs for piece in _pieces(*pair))
    return sum((_of_piece(*piece) for piece in pieces), Error())


def noise_between(expected: Any, found: Any) -> float:
    """``error_between(expected, found).noise`` alone, which is quicker; 0 without a pair.

    >>> import torch
    >>> from halfstep.report.errors import noise_between
    >>> noise_between(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]))
    0.25
    """
    pieces = [piece for pair in _pairs(expected, found) for piece in _pieces(*pair)]
    noise = sum(_square(y.double() - other) for y, other in pieces)
    return noise if math.isfinite(noise) else sum(_of_piece(*piece).noise for piece in pieces)


def _pairs(expected: Any, found: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The float tensors of both."""
    if isinstance(expected, Tensor) and isinstance(found, Tensor):
        if expected.is_floating_point() and found.is_floating_point():
            yield expected.detach(), found.detach()
    elif isinstance(expected, tuple | list) and isinstance(found, tuple | list):
        for y, other in zip(expected, found, strict=False):
            yield from _pairs(y, other)


def _pieces(expected: Tensor, found: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Two tensors of one shape in flat pieces, in the order in which one lies in memory."""
    order = sorted(range(expected.ndim), key=expected.stride, reverse=True)
    both = (x.permute(order).reshape(-1).split(_PIECE) for x in (expected, found))
    return zip(*both, strict=True)


def _of_piece(expected: Tensor, found: Tensor) -> Error:
    y, other = expected.double(), found.double()
    error = _sums(y, other)
    if math.isfinite(error.noise) and math.isfinite(error.signal):
        return error
    return _with_odd(y, other)


def _sums(y: Tensor, other: Tensor) -> Error:
    difference = y - other
    signal, power, noise = _square(y), _square(other), _square(difference)
    return Error(
        signal=signal,
        noise=noise,
        product=(signal + power - noise) / 2,
        power=power,
        largest=float(difference.abs_().amax()) if y.numel() else 0.0,
        elements=y.numel(),
    )


def _square(x: Tensor) -> float:
    return float(x.square().sum())


def _with_odd(y: Tensor, other: Tensor) -> Error:
    """The same where some values are not finite."""
    finite = y.isfinite() & other.isfinite()
    alike = (y == other) | (y.isnan() & other.isnan())
    sums = replace(_sums(y[finite], other[finite]), elements=y.numel())
    if bool((finite | alike).all()):
        return sums
    return replace(sums, noise=math.inf, largest=math.inf)
