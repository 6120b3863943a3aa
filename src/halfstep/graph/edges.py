"""The integers between two steps of a program: their format, and what they stand for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.spec import PerTensor, QSpec


@dataclass(frozen=True)
class Edge:
    """One scale and zero point for a whole tensor: ``x' = (q - zero_point) * scale``.

    spec: a per-tensor format.
    scale: a positive float32, as a Python number.
    zero_point: the code of 0.0.

    Raises ``ArgumentError`` for a format with more than one scale.

    >>> import halfstep as hs
    >>> from halfstep.graph.edges import Edge
    >>> print(Edge(hs.QSpec(hs.uint8), 0.5, 3))
    uint8(scale=0.5, zero_point=3)
    """

    spec: QSpec
    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        if self.spec.granularity != PerTensor():
            raise ArgumentError(
                f"{self.spec} has more than one scale: what runs between steps in integers has one "
                "for the whole tensor, or PerToken() ones that are found while the model runs"
            )

    @property
    def qmin(self) -> int:
        """The lowest code in use."""
        return self.spec.qmin

    @property
    def qmax(self) -> int:
        """The highest code in use."""
        return self.spec.qmax

    @property
    def storage(self) -> torch.dtype:
        """The torch dtype of the codes: one element for each, never packed."""
        return self.spec.dtype.storage

    def qparams(self, ndim: int) -> tuple[Tensor, Tensor]:
        """Scale and zero point as tensors with one element and ``ndim`` dimensions."""
        shape = (1,) * ndim
        scale = torch.tensor(self.scale, dtype=torch.float32).reshape(shape)
        return scale, torch.tensor(self.zero_point, dtype=torch.int32).reshape(shape)

    def code_of(self, value: float) -> int:
        """The code of a number: ``clamp(rne(value / scale) + zero_point, qmin, qmax)``."""
        step = torch.tensor(value, dtype=torch.float32) / torch.tensor(self.scale)
        code = step.round().double().item() + self.zero_point
        return int(min(max(code, self.qmin), self.qmax))

    def to_dict(self) -> dict[str, Any]:
        """The edge as plain data."""
        return {
            "spec": self.spec.to_dict(),
            "scale": self.scale,
            "zero_point": self.zero_point,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Edge":
        """The edge that ``to_dict`` wrote."""
        return cls(QSpec.from_dict(plain["spec"]), float(plain["scale"]), int(plain["zero_point"]))

    def __str__(self) -> str:
        return f"{self.spec.dtype!r}(scale={self.scale:.6g}, zero_point={self.zero_point})"
