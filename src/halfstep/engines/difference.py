"""How far what an engine returns is from what the formulas say."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.errors import ArgumentError


@dataclass(frozen=True)
class Difference:
    """Outputs of an engine beside those of the reference.

    elements: how many numbers were compared.
    unequal: how many of them are further apart than ``tolerance`` (a share of the output's range).
    largest: the largest distance.
    steps: the same in steps of the last edge before the output, where there is one.
    sqnr: the power of the reference over that of the differences, in dB; infinite if all are equal.
    """

    elements: int
    unequal: int
    largest: float
    steps: float | None
    sqnr: float

    @property
    def share(self) -> float:
        """The share of elements that differ."""
        return self.unequal / self.elements if self.elements else 0.0

    def __str__(self) -> str:
        if not self.unequal:
            return f"equal to the reference in all {self.elements} elements"
        apart = f"{self.largest:.3g}" if self.steps is None else f"{self.steps:.3g} steps"
        return (
            f"{self.share:.2%} of {self.elements} elements differ from the reference, by at most "
            f"{apart}; SQNR {self.sqnr:.1f} dB"
        )


def difference(
    expected: Iterable[Tensor],
    found: Iterable[Tensor],
    *,
    step: float | None = None,
    tolerance: float = 1e-5,
) -> Difference:
    """Compare the outputs of one or several calls.

        sqnr = 10 log10(sum of expected^2 / sum of (expected - found)^2)

    step: the scale of the last edge. tolerance: of the largest absolute value of an output; float
    operators of two runtimes differ by that much without a meaning.

    Raises ``ArgumentError`` for outputs of other shapes.

    >>> import torch
    >>> from halfstep.engines.difference import difference
    >>> print(difference([torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 2.5])], step=0.5))
    50.00% of 2 elements differ from the reference, by at most 1 steps; SQNR 13.0 dB
    """
    elements = unequal = 0
    largest = power = noise = 0.0
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape:
            raise ArgumentError(
                f"the engine returns {tuple(other.shape)}, and the reference {tuple(one.shape)}"
            )
        wide = one.double()
        apart = (wide - other.double()).abs()
        apart = torch.where(wide == other, 0.0, apart)  # infinities
        elements += one.numel()
        if one.numel():
            unequal += int((apart > tolerance * wide.abs().amax()).sum())
            largest = max(largest, float(apart.amax()))
        power, noise = power + float(wide.square().sum()), noise + float(apart.square().sum())
    sqnr = math.inf if noise == 0 else 10 * math.log10(power / noise) if power else -math.inf
    return Difference(elements, unequal, largest, largest / step if step else None, sqnr)
