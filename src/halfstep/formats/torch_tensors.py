"""The records of a checkpoint to tensors, by the function that torch would have called.

The functions are known by name and never looked up: each is answered by a few lines here.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch

from halfstep.errors import FileFormatError
from halfstep.formats.pickle_records import Call, Global, Number, Record
from halfstep.formats.stored import StoredTensor
from halfstep.formats.torch_archive import Archive
from halfstep.formats.torch_halfstep import read_halfstep
from halfstep.formats.torch_quantized import read_quantized
from halfstep.formats.torch_views import PLAIN_BUILDERS, UnreadableTensorError, plain_view


def read_number(number: Number) -> StoredTensor:
    """The tensor of a number, as ``state_dict`` makes it: int64, or float32.

    >>> read_number(Number(3)).load()
    tensor(3)
    """
    dtype = torch.int64 if isinstance(number.value, int) else torch.float32
    return StoredTensor(
        (), dtype, None, dtype.itemsize, lambda: torch.tensor(number.value, dtype=dtype)
    )


def read_tensor(record: Record, archive: Archive) -> StoredTensor | None:
    """The tensor that a record describes; None when the record is no tensor.

    Raises ``UnreadableTensorError`` for kinds that are not read, ``FileFormatError`` for bad ones.
    """
    if not isinstance(record, Call):
        return None
    if record.path in PLAIN_BUILDERS:
        view = plain_view(record, archive)
        return StoredTensor(view.shape, view.dtype, None, view.numel * view.itemsize, view.read)
    builder = _BUILDERS.get(record.path)
    if builder is not None:
        return builder(record.args, archive)
    if record.path.startswith("torch._utils._rebuild"):
        reason = _REASONS.get(record.path, f"{record.path} is unknown: save it as a plain tensor")
        raise UnreadableTensorError(reason)
    return None


def _wrapped(args: Sequence[Record], archive: Archive) -> StoredTensor:
    """A Parameter, or a tensor moved to the CPU to be saved: the first argument is the tensor."""
    found = read_tensor(args[0], archive) if args else None
    if found is None:
        raise FileFormatError("corrupt: a parameter holds no tensor")
    return found


def _subclass(args: Sequence[Record], archive: Archive) -> StoredTensor:
    """``_rebuild_from_type_v2(function, type, args, state)``: the tensor of a subclass."""
    if len(args) < 3 or not isinstance(args[2], tuple):
        raise FileFormatError("corrupt: a tensor of a subclass lacks its data")
    found = read_tensor(Call(args[0], args[2]), archive)
    if found is None:
        kind = args[1].path if isinstance(args[1], Global) else "a subclass"
        raise UnreadableTensorError(f"it is a {kind}, which only its own code can rebuild")
    return found


_BUILDERS: Final[dict[str, Callable[[Sequence[Record], Archive], StoredTensor]]] = {
    "torch._utils._rebuild_qtensor": read_quantized,
    "halfstep.tensor.qtensor.rebuild_qtensor": read_halfstep,
    "torch._utils._rebuild_parameter": _wrapped,
    "torch._utils._rebuild_parameter_with_state": _wrapped,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _wrapped,
    "torch._tensor._rebuild_from_type_v2": _subclass,
}
_REASONS: Final = {
    "torch._utils._rebuild_sparse_tensor": "it is sparse: save its to_dense()",
    "torch._utils._rebuild_nested_tensor": "it is a nested tensor: save its parts (unbind())",
    "torch._utils._rebuild_meta_tensor_no_storage": "it is on the meta device and holds no data",
    "torch._utils._rebuild_wrapper_subclass": "only the code of its subclass can rebuild it",
    "torch._utils._rebuild_device_tensor_from_numpy": "it is a pickled NumPy array: save a tensor",
}
