"""Writing a safetensors file piece by piece, so that one tensor at a time is in memory.

The same tensors and metadata give the same bytes. The format: 8 bytes with the length of a header,
the header (JSON), then the tensors' bytes without gaps, widest elements first so that all lie
aligned.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, BinaryIO, Final, TypeAlias

import torch
from torch import Tensor

from halfstep.errors import ArgumentError
from halfstep.formats.chunks import CHUNK
from halfstep.formats.safe_file import DTYPES

MAX_HEADER: Final = 100_000_000  # what readers of safetensors take
_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}

Layout: TypeAlias = tuple[torch.dtype, tuple[int, ...]]


class SafeWriter:
    r"""A safetensors file of known shapes, whose tensors are put in any order.

    >>> import io
    >>> file = io.BytesIO()
    >>> SafeWriter(file, {"x": (torch.uint8, (2,))}, {}).put("x", torch.tensor([7, 8]).byte())
    >>> file.getvalue()[8:]
    b'{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   \x07\x08'
    """

    def __init__(
        self, file: BinaryIO, layouts: Mapping[str, Layout], metadata: Mapping[str, str]
    ) -> None:
        """Write the header.

        Raises ``ArgumentError`` for one that no reader takes.
        """
        header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        self._file, self._places, end = file, dict[str, int](), 0
        for name in sorted(layouts, key=lambda name: (-layouts[name][0].itemsize, name)):
            dtype, shape = layouts[name]
            start, end = end, end + math.prod(shape) * dtype.itemsize
            entry = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": [start, end]}
            header[name], self._places[name] = entry, start
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > MAX_HEADER:
            raise ArgumentError(
                f"the names and the description take {len(text)} bytes, and readers of safetensors "
                f"take {MAX_HEADER}: split the tensors into several files"
            )
        file.write(len(text).to_bytes(8, "little") + text)
        self._start = file.tell()
        file.truncate(self._start + end)

    def put(self, name: str, tensor: Tensor) -> None:
        """Write a tensor, row-major, into its place."""
        self._file.seek(self._start + self._places[name])
        plain = tensor.detach().resolve_conj().resolve_neg()
        if plain.numel() == 0:
            return
        flat = plain.cpu().contiguous().as_strided((plain.numel(),), (1,))
        for chunk in flat.split(CHUNK):
            self._file.write(chunk.view(torch.uint8).numpy().data)
