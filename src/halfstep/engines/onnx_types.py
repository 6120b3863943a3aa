"""Torch's dtypes as ONNX's element types, whose numbers the format fixes."""

import torch

from halfstep.errors import ArgumentError

UINT4, INT4 = 21, 22
_ELEMENTS = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.uint16: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.bfloat16: 16,
}


def element_of(dtype: torch.dtype, where: str) -> int:
    """The number of an element type.

    Raises ``ArgumentError`` for a dtype that ONNX lacks.

    >>> import torch
    >>> element_of(torch.uint8, "fc")
    2
    """
    if dtype not in _ELEMENTS:
        raise ArgumentError(
            f"{where} computes in {dtype}, which an ONNX file cannot hold here: use "
            f"{', '.join(str(each).removeprefix('torch.') for each in _ELEMENTS)}"
        )
    return _ELEMENTS[dtype]
