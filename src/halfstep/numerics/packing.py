"""Several codes in a byte, in plain PyTorch: row-major, the first code in the lowest bits.

This is the layout of ONNX's INT4, UINT4, INT2 and UINT2 tensors.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def pack(ints: Tensor, bits: int) -> Tensor:
    """Pack codes of 2 or 4 bits into ceil(numel * bits / 8) bytes; unused bits are 0."""
    per_byte = 8 // bits
    codes = ints.reshape(-1).to(torch.uint8) & (2**bits - 1)
    missing = -codes.numel() % per_byte
    codes = torch.cat([codes, codes.new_zeros(missing)]).view(-1, per_byte)
    packed = codes[:, 0].clone()
    for place in range(1, per_byte):
        packed |= codes[:, place] << (place * bits)
    return packed


def unpack(packed: Tensor, bits: int, signed: bool, shape: Sequence[int]) -> Tensor:
    """The codes of ``pack``, as a contiguous int8 or uint8 tensor of ``shape``."""
    numel = torch.Size(shape).numel()
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    spread = (packed.unsqueeze(1) >> shifts) & (2**bits - 1)
    codes: Tensor = spread.reshape(-1)[:numel].reshape(list(shape))
    sign = 2 ** (bits - 1)
    return (codes.to(torch.int8) ^ sign).sub(sign) if signed else codes
