"""QSpec: the format of a quantized tensor, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.spec.dtypes import QDType
from halfstep.spec.granularity import Granularity, PerChannel, PerGroup, PerTensor, PerToken

_GRANULARITIES: tuple[type[Granularity], ...] = (PerTensor, PerChannel, PerGroup, PerToken)
_FLAGS = ("symmetric", "narrow_range", "float_zero_point")


@dataclass(frozen=True, slots=True, init=False)
class QSpec:
    """The format of a quantized tensor: ``x' = (q - zero_point) * scale``, ``qmin <= q <= qmax``.

    dtype: an integer format of halfstep, or a torch integer dtype.
    granularity: which elements share a scale; one scale for the whole tensor unless said.
    symmetric: zero_point is 0, so the format must be signed.
    narrow_range: the lowest code is unused, so that the bounds are [-qmax, qmax].
    float_zero_point: ``q = rne(x / scale + zero_point)`` with a float32 zero point, the form of old
        EmbeddingBag checkpoints; zero is not exact.

    Raises ``ArgumentError`` for combinations that mean nothing.

    >>> import halfstep as hs
    >>> hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True, narrow_range=True)
    QSpec(int8, PerChannel(axis=0), symmetric=True, narrow_range=True)
    """

    dtype: QDType
    granularity: Granularity
    # torch.compile reads these fields to call the constructor, whose flags go by name.
    symmetric: bool = field(kw_only=True)
    narrow_range: bool = field(kw_only=True)
    float_zero_point: bool = field(kw_only=True)

    def __init__(
        self,
        dtype: QDType | torch.dtype,
        granularity: Granularity | None = None,
        *,
        symmetric: bool = False,
        narrow_range: bool = False,
        float_zero_point: bool = False,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "dtype", QDType.of(dtype))
        set_field(self, "granularity", PerTensor() if granularity is None else granularity)
        set_field(self, "symmetric", symmetric)
        set_field(self, "narrow_range", narrow_range)
        set_field(self, "float_zero_point", float_zero_point)
        self._check()

    def _check(self) -> None:
        if not isinstance(self.granularity, _GRANULARITIES):
            raise ArgumentTypeError(
                f"granularity={self.granularity!r} is not a granularity: use PerTensor(), "
                "PerChannel(axis), PerGroup(axis, size) or PerToken()"
            )
        for flag in _FLAGS:
            if not isinstance(getattr(self, flag), bool):
                raise ArgumentTypeError(
                    f"{flag}={getattr(self, flag)!r} is not a bool: use True or False"
                )
        if self.symmetric and not (self.dtype.qmin < 0 < self.dtype.qmax):
            raise ArgumentError(
                f"symmetric=True needs codes on both sides of zero, and {self.dtype} has "
                f"[{self.dtype.qmin}, {self.dtype.qmax}]: use a signed dtype or symmetric=False"
            )
        if self.narrow_range and not (self.dtype.signed and self.dtype.is_full):
            raise ArgumentError(
                f"narrow_range=True drops the lowest code of a full signed dtype, and {self.dtype} "
                "is not one: give the bounds with dtype.within(qmin, qmax) instead"
            )
        if self.float_zero_point and (self.symmetric or self.dtype.bits > 8):
            raise ArgumentError(
                "float_zero_point=True is the asymmetric form of at most 8 bits: "
                "leave out symmetric=True, and use a dtype of at most 8 bits"
            )

    @property
    def qmin(self) -> int:
        """The lowest code in use, narrow range applied."""
        return self.dtype.qmin + self.narrow_range

    @property
    def qmax(self) -> int:
        """The highest code in use."""
        return self.dtype.qmax

    @property
    def axis(self) -> int | None:
        """The axis that is kept (per channel) or cut (per group); None without a single one."""
        return self.granularity.axis

    @property
    def zero_point_dtype(self) -> torch.dtype:
        """int32, or float32 in the float-zero-point form."""
        return torch.float32 if self.float_zero_point else torch.int32

    def with_granularity(self, granularity: Granularity) -> "QSpec":
        """The same format with another granularity.

        >>> import halfstep as hs
        >>> hs.QSpec(hs.int8).with_granularity(hs.PerChannel(0))
        QSpec(int8, PerChannel(axis=0))
        """
        if granularity == self.granularity:
            return self
        return QSpec(
            self.dtype,
            granularity,
            symmetric=self.symmetric,
            narrow_range=self.narrow_range,
            float_zero_point=self.float_zero_point,
        )

    def normalized(self, ndim: int) -> "QSpec":
        """The same format with axes counted from the front, for a tensor of ``ndim`` dimensions."""
        return self.with_granularity(self.granularity.normalized(ndim))

    def to_dict(self) -> dict[str, str | int | bool]:
        """The spec as plain data, for JSON and for files.

        >>> import halfstep as hs
        >>> hs.QSpec(hs.int4, hs.PerGroup(1, 32), symmetric=True).to_dict()
        {'dtype': 'int4', 'granularity': 'PerGroup', 'axis': 1, 'size': 32, 'symmetric': True}
        """
        plain: dict[str, str | int | bool] = {"dtype": repr(self.dtype)}
        plain["granularity"] = type(self.granularity).__name__
        names = [field.name for field in fields(self.granularity)]
        plain |= {name: getattr(self.granularity, name) for name in names}
        return plain | {flag: True for flag in _FLAGS if getattr(self, flag)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "QSpec":
        """The spec that ``to_dict`` wrote; an ``ArgumentError`` says what cannot be read.

        >>> QSpec.from_dict({"dtype": "uint8", "granularity": "PerChannel", "axis": 0})
        QSpec(uint8, PerChannel(axis=0))
        """
        if not isinstance(plain, Mapping):
            raise ArgumentTypeError(f"{plain!r} is not a format: give what to_dict() returned")
        rest = dict(plain)
        kinds = {kind.__name__: kind for kind in _GRANULARITIES}
        kind = kinds.get(str(rest.pop("granularity", "PerTensor")))
        dtype = rest.pop("dtype", None)
        flags = {flag: rest.pop(flag) for flag in _FLAGS if flag in rest}
        plain_flags = all(isinstance(flag, bool) for flag in flags.values())
        if kind is None or not isinstance(dtype, str) or not plain_flags:
            raise ArgumentError(
                f"{dict(plain)} is not a format: it needs a dtype and a granularity"
            )
        if set(rest) != {field.name for field in fields(kind)}:
            raise ArgumentError(f"{dict(plain)} is not a format: {kind.__name__} has other fields")
        return cls(QDType.parse(dtype), kind(**rest), **flags)

    def __repr__(self) -> str:
        parts = [repr(self.dtype)]
        parts += [repr(self.granularity)] * (self.granularity != PerTensor())
        parts += [f"{flag}=True" for flag in _FLAGS if getattr(self, flag)]
        return f"QSpec({', '.join(parts)})"
