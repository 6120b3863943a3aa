"""QTensor: integers, scale and zero point that travel as one torch.Tensor.

This file holds the data, its invariants and how it is copied and stored. What torch operators do
with it stands in the tables of ``dispatch``, which the files of this room fill.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from halfstep.errors import MutationError
from halfstep.numerics import ops
from halfstep.numerics.stored import check_stored
from halfstep.spec import QSpec
from halfstep.tensor import display
from halfstep.tensor.accuracy import QuantizationError, quantization_error
from halfstep.tensor.dispatch import Dispatched
from halfstep.tensor.questions import Questions

_FIELDS = ("_codes", "_scale", "_zero_point")


class QTensor(Questions, Dispatched):  # type: ignore[override]  # nbytes cannot be set
    """A quantized tensor: each element is ``(q - zero_point) * scale``.

    Its ``shape``, ``dtype`` and ``device`` are those of the floats that it stands for. Three plain
    tensors and a ``QSpec`` are kept:

    * the integers, in ``spec.dtype.storage``; 2- and 4-bit ones packed, several in a byte;
    * ``scale``, float32, with all dimensions: ``spec.granularity.scale_shape(shape)``;
    * ``zero_point``, int32 (float32 in the float-zero-point form), of scale's shape.

    ``hs.quantize`` and ``hs.from_int_repr`` make one; this constructor checks nothing.
    ``torch.load(weights_only=True)`` reads one where halfstep has been imported before.

    >>> import halfstep as hs, torch
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> q = hs.quantize(x, hs.int8, axis=0, scale=0.5, zero_point=0)
    >>> q.int_repr()
    tensor([[2, 4],
            [6, 8]], dtype=torch.int8)
    >>> q.axis, q.transpose(0, 1).axis
    (0, 1)
    """

    _codes: Tensor
    _scale: Tensor
    _zero_point: Tensor
    _spec: QSpec
    # Whether it is a view of packed integers, which had to be unpacked into memory of its own.
    is_apart: bool

    def __new__(  # noqa: PYI034  (the parts of the one type; 3.10 has no Self)
        cls,
        codes: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        spec: QSpec,
        *,
        dtype: torch.dtype = torch.float32,
        shape: Sequence[int] | None = None,
    ) -> "QTensor":
        """Wrap integers; ``shape`` says that they are packed."""
        size = codes.shape if shape is None else torch.Size(shape)
        made: QTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            size,
            strides=codes.stride() if shape is None else None,
            dtype=dtype,
            device=codes.device,
        )
        made._codes, made._scale, made._zero_point, made._spec = codes, scale, zero_point, spec
        made.is_apart = False
        return made

    @classmethod
    def from_parts(
        cls,
        ints: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        spec: QSpec,
        dtype: torch.dtype = torch.float32,
    ) -> "QTensor":
        """Wrap unpacked integers, packing them where the format says so."""
        if not spec.dtype.is_packed:
            return cls(ints, scale, zero_point, spec, dtype=dtype)
        packed = ops.pack(ints, spec.dtype.bits)
        return cls(packed, scale, zero_point, spec, dtype=dtype, shape=ints.shape)

    def like(self, ints: Tensor) -> "QTensor":
        """Other integers of the same shape, under copies of the same scale and zero point."""
        scale, zero_point = self._scale.clone(), self._zero_point.clone()
        return QTensor.from_parts(ints, scale, zero_point, self._spec, self.dtype)

    # What it holds.

    @property
    def ints(self) -> Tensor:
        """The integers themselves, unpacked, sharing memory with the tensor where they can."""
        if not self._spec.dtype.is_packed:
            return self._codes
        dtype = self._spec.dtype
        return ops.unpack(self._codes, dtype.bits, dtype.signed, self.shape)

    def int_repr(self) -> Tensor:
        """A copy of the integers, in ``spec.dtype.storage`` and the tensor's shape."""
        return self.ints if self._spec.dtype.is_packed else self._codes.clone()

    @property
    def scale(self) -> Tensor:
        """The step: float32, as many dimensions as the tensor, shaped as the granularity says."""
        return self._scale

    @property
    def zero_point(self) -> Tensor:
        """The code of 0.0, of scale's shape: int32, or float32 in the float-zero-point form."""
        return self._zero_point

    @property
    def spec(self) -> QSpec:
        """The format: dtype, granularity, symmetry; axes counted from the front."""
        return self._spec

    @property
    def axis(self) -> int | None:
        """The axis kept per channel, or cut per group; None per tensor and per token."""
        return self._spec.axis

    def qparams(self) -> tuple[Tensor, Tensor]:
        """``(scale, zero_point)``, both with all dimensions."""
        return self._scale, self._zero_point

    def dequantize(self) -> Tensor:
        """The floats: ``(q - zero_point) * scale``, in the dtype the tensor stands for.

        Where the tensor requires a gradient, that of the floats is handed on to it.
        """
        if self.requires_grad and torch.is_grad_enabled():
            differentiable: Tensor = _Floats.apply(self)  # type: ignore[no-untyped-call]  # torch's
            return differentiable
        return self.floats()

    def floats(self, dtype: torch.dtype | None = None) -> Tensor:
        """The floats without autograd history, in another float dtype if one is given."""
        return ops.dequantize(self.ints, self._scale, self._zero_point, dtype or self.dtype)

    def quantization_error(self, x: Tensor) -> QuantizationError:
        """How far the tensor is from x, the floats that were quantized: dB, steps, saturation.

        Raises ``ArgumentTypeError`` or ``ArgumentError`` for an x that is no float tensor or does
        not have the shape.
        """
        return quantization_error(x, self.qparams(), self.ints, self._spec, self.dtype)

    # Torch's protocols.

    def __tensor_flatten__(self) -> tuple[list[str], tuple[QSpec, torch.dtype]]:
        """The inner tensors' names and what is needed beside them."""
        return list(_FIELDS), (self._spec, self.dtype)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], meta: tuple[QSpec, torch.dtype], size: Any, stride: Any
    ) -> "QTensor":
        """The inverse of ``__tensor_flatten__``."""
        spec, dtype = meta
        shape = size if spec.dtype.is_packed else None
        parts = (inner["_codes"], inner["_scale"], inner["_zero_point"])
        return QTensor(*parts, spec, dtype=dtype, shape=shape)

    def _stable_hash_for_caching(self) -> str:
        """What ``torch.compile`` may key its cache on."""
        return f"{self._spec!r} {self.dtype}"

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        """Refused: the integers of part of a tensor cannot follow new values."""
        raise MutationError(
            "q[...] = value would change a quantized tensor in place: change q.dequantize() and "
            "quantize that, or build new integers and use hs.from_int_repr"
        )

    @property
    def data(self) -> Tensor:
        """The tensor without autograd history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> NoReturn:
        raise MutationError(
            "q.data = value would change a quantized tensor in place: assign a new tensor instead"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch stubs no name
        """The integers, then the format, scale and zero point."""
        return display.text(self.ints, self._scale, self._zero_point, self._spec, self.dtype)

    def _repr_html_(self) -> str:
        """The notebook view."""
        return display.html(self.ints, self._scale, self._zero_point, self._spec, self.dtype)

    # Ways out to numpy and plain Python: the floats.

    def numpy(self, *, force: bool = False) -> Any:
        """The floats as a numpy array; ``int_repr().numpy()`` gives the integers."""
        return self.dequantize().numpy(force=force)

    def tolist(self) -> Any:
        """The floats as nested lists."""
        return self.dequantize().tolist()

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The floats as a DLPack capsule."""
        return self.dequantize().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        """The device of the floats."""
        return self.ints.__dlpack_device__()

    def __format__(self, format_spec: str) -> str:
        """A single element formats as the float that it stands for."""
        return format(self.item() if self.ndim == 0 and format_spec else repr(self), format_spec)

    # Survival.

    def stored(self) -> tuple[Tensor, Tensor, Tensor]:
        """The inner tensors: codes (packed where the format says so), scale and zero point."""
        return self._codes, self._scale, self._zero_point

    def share_memory_(self) -> "QTensor":
        """Move the inner tensors to shared memory, and return the tensor."""
        for part in self.stored():
            part.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether the inner tensors are in shared memory."""
        return all(part.is_shared() for part in self.stored())

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as plain tensors, plain data and one function that torch is told to trust."""
        shape = tuple(self.shape) if self._spec.dtype.is_packed else None
        is_parameter = getattr(self, "_is_param", False)
        plain = (self._spec.to_dict(), self.dtype, shape, is_parameter, self.requires_grad)
        # Plain pickle knows no storage of uint16, so its bits travel as int16.
        codes = self._codes.view(torch.int16) if self._codes.dtype == torch.uint16 else self._codes
        return rebuild_qtensor, (codes, self._scale, self._zero_point, *plain)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy that shares nothing, with the attributes that were set on the tensor."""
        if id(self) in memo:
            known: Tensor = memo[id(self)]
            return known
        codes, scale, zero_point = (part.clone() for part in self.stored())
        shape = self.shape if self._spec.dtype.is_packed else None
        made = QTensor(codes, scale, zero_point, self._spec, dtype=self.dtype, shape=shape)
        memo[id(self)] = made
        own = {name: value for name, value in vars(self).items() if name not in vars(made)}
        vars(made).update(copy.deepcopy(own, memo))
        return made.requires_grad_(self.requires_grad)


class _Floats(torch.autograd.Function):
    """Dequantize a tensor that requires a gradient; what reaches the floats reaches it."""

    @staticmethod
    def forward(ctx: Any, q: QTensor) -> Tensor:
        return q.floats()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def rebuild_qtensor(  # noqa: PLR0913, PLR0917  (a pickle holds plain positional values)
    codes: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    spec: Mapping[str, Any],
    dtype: torch.dtype,
    shape: Sequence[int] | None,
    is_parameter: bool,  # noqa: FBT001  (the same)
    requires_grad: bool = False,  # noqa: FBT001, FBT002  (the same)
) -> QTensor:
    """The inverse of ``__reduce_ex__``; a ``HalfstepError`` where a file's parts do not fit."""
    read = QSpec.from_dict(spec)
    read = check_stored((codes, scale, zero_point), read, dtype, shape)
    codes = codes.view(read.dtype.storage) if shape is None else codes
    made = QTensor(codes, scale, zero_point, read, dtype=dtype, shape=shape)
    if is_parameter:
        made._is_param = True
    made.requires_grad_(requires_grad)
    return made


torch.serialization.add_safe_globals([rebuild_qtensor])
