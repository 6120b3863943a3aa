"""Codes of one scale, as the formulas take them."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Operand:
    """Codes with one scale and zero point, which have all of q's dimensions."""

    q: Tensor
    scale: Tensor
    zero_point: Tensor

    @property
    def args(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three arguments of an operator."""
        return self.q, self.scale, self.zero_point

    @property
    def steps(self) -> Tensor:
        """q - zero_point, exact, in int64."""
        return self.q.to(torch.int64) - self.zero_point.to(torch.int64)

    @property
    def values(self) -> Tensor:
        """What the codes stand for, in float64."""
        return self.steps.double() * self.scale.double()
