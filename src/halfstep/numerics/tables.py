"""A function of one variable, between codes: an entry for each code of the input.

    y = f((q - zero_point) * scale)                            float64
    table[q - lowest] = clamp(rne(y / out_scale) + out_zero_point, qmin, qmax)

``lowest`` is that of the dtype that holds the input's codes, so a table has 256 entries. As in
quantize, an infinite y saturates and NaN counts as 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.spec import QDType


@dataclass(frozen=True)
class Codes:
    """Codes of one scale and zero point: what a table maps from, and to."""

    dtype: QDType
    scale: float
    zero_point: int


def build(function: Callable[[Tensor], Tensor], source: Codes, target: Codes) -> Tensor:
    """The table of ``function``, from float64 to float64: 256 entries in the target's storage.

    A function that returns (C, 256) gives a row for each channel.

    >>> import halfstep as hs, torch
    >>> from halfstep.numerics.tables import Codes, build
    >>> table = build(torch.sigmoid, Codes(hs.int8, 0.1, 0), Codes(hs.uint8, 1 / 256, 0))
    >>> table.shape, table[128].item()
    (torch.Size([256]), 128)
    """
    y = function(values(source))
    scale = torch.tensor(target.scale, dtype=torch.float32).double()
    codes = (y / scale).round() + target.zero_point
    codes = codes.nan_to_num(target.zero_point, torch.inf, -torch.inf)
    return codes.clamp(target.dtype.qmin, target.dtype.qmax).to(target.dtype.storage)


def values(source: Codes) -> Tensor:
    """What each of the 256 codes stands for, in float64, from the lowest code on."""
    lowest = torch.iinfo(source.dtype.storage).min
    steps = torch.arange(256, dtype=torch.float64) + (lowest - source.zero_point)
    return steps * torch.tensor(source.scale, dtype=torch.float32).double()
