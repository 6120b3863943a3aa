"""Mean and variance of the channels of a value, over as many batches as come."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Moments:
    """How many values a channel had, their mean and their variance; (C,) in float64.

    >>> import torch
    >>> from halfstep.graph.moments import Moments
    >>> found = Moments.of([torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])], axis=1)
    >>> found.mean.tolist(), found.var.tolist()
    ([2.0, 0.0], [1.0, 0.0])
    """

    count: int
    mean: Tensor
    var: Tensor

    @classmethod
    def of(cls, values: Sequence[Tensor], axis: int) -> "Moments":
        """Those of one value in several batches."""
        first, *rest = (cls._of_one(value, axis) for value in values)
        for other in rest:
            first = first.merged(other)
        return first

    @classmethod
    def _of_one(cls, value: Tensor, axis: int) -> "Moments":
        rows = value.detach().movedim(axis, 0).flatten(1).to("cpu", torch.float64)
        return cls(rows.shape[1], rows.mean(1), rows.var(1, correction=0))

    def merged(self, other: "Moments") -> "Moments":
        """Those of both data together.

        Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
        Sample Variances", 1979.
        """
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        share, apart = other.count / count, other.mean - self.mean
        between = apart.square() * share * (1 - share)
        var = self.var * (1 - share) + other.var * share + between
        return Moments(count, self.mean + apart * share, var)
