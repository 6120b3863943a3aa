"""Integer formats as objects: bits, sign, bounds and the torch dtype that stores them."""

from dataclasses import dataclass, replace

import torch

from halfstep.errors import ArgumentError, ArgumentTypeError

PACKED_BITS = (2, 4)


@dataclass(frozen=True, slots=True)
class QDType:
    """An integer format: every code q satisfies ``qmin <= q <= qmax``.

    ``bits`` and ``signed`` give the widest bounds, ``within`` narrows them, ``storage`` is the
    torch dtype that holds one code (2- and 4-bit codes are packed into bytes when kept).

    >>> import halfstep as hs
    >>> hs.int4
    int4
    >>> hs.int4.qmin, hs.int4.qmax, hs.int4.storage
    (-8, 7, torch.int8)
    """

    bits: int
    signed: bool
    qmin: int
    qmax: int

    def __post_init__(self) -> None:
        if self.bits < 2 or (max(8, self.bits), self.signed) not in _STORAGE:
            raise ArgumentError(
                f"bits={self.bits} {'signed' if self.signed else 'unsigned'} is not an integer "
                f"format: use one of {', '.join(_BY_NAME)}"
            )
        for name, bound in (("qmin", self.qmin), ("qmax", self.qmax)):
            if isinstance(bound, bool) or not isinstance(bound, int):
                raise ArgumentTypeError(
                    f"{name}={bound!r} is not an integer: give one of {self.name}"
                )
        if not (self.lowest <= self.qmin < self.qmax <= self.highest):
            raise ArgumentError(
                f"{self.name} holds [{self.lowest}, {self.highest}], so it cannot be narrowed to "
                f"[{self.qmin}, {self.qmax}]: choose bounds inside it"
            )

    @classmethod
    def with_bits(cls, bits: int, *, signed: bool) -> "QDType":
        """The full format of so many bits: two's complement when signed.

        >>> QDType.with_bits(8, signed=True)
        int8
        """
        lowest = -(1 << bits >> 1) if signed else 0
        return cls(bits, signed, lowest, lowest + (1 << bits) - 1)

    @classmethod
    def of(cls, dtype: "QDType | torch.dtype") -> "QDType":
        """The format meant by a QDType or a torch integer dtype.

        Raises ``ArgumentTypeError`` for anything else.

        >>> QDType.of(torch.uint8)
        uint8
        """
        if isinstance(dtype, QDType):
            return dtype
        found = next((own for own in _ALL if own.bits >= 8 and own.storage == dtype), None)
        if found is None:
            raise ArgumentTypeError(
                f"dtype={dtype!r} is not an integer format: use one of {', '.join(_BY_NAME)} from "
                "halfstep, or torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32"
            )
        return found

    @classmethod
    def parse(cls, name: str) -> "QDType":
        """The format with this name, as ``str()`` prints it.

        Raises ``ArgumentError`` for a name that no format has, and for bounds that cannot be read
        or do not lie inside the format.

        >>> QDType.parse("int4"), QDType.parse("int8[-127, 127]")
        (int4, int8[-127, 127])
        """
        base, bracket, bounds = name.partition("[")
        if base.strip() not in _BY_NAME:
            raise ArgumentError(f"{name!r} is not an integer format: use {', '.join(_BY_NAME)}")
        dtype = _BY_NAME[base.strip()]
        if not bracket:
            return dtype
        try:
            qmin, qmax = (int(part) for part in bounds.removesuffix("]").split(","))
        except ValueError:
            raise ArgumentError(
                f"{name!r} has unreadable bounds: write them as {base}[-100, 100]"
            ) from None
        return dtype.within(qmin, qmax)

    def within(self, qmin: int, qmax: int) -> "QDType":
        """The same storage with narrower bounds.

        Raises ``ArgumentError`` for bounds outside the format, or that hold fewer than two codes.

        >>> import halfstep as hs
        >>> hs.int8.within(-3, 100)
        int8[-3, 100]
        """
        return replace(self, qmin=qmin, qmax=qmax)

    @property
    def name(self) -> str:
        """The name without bounds, such as ``int8``."""
        return f"{'' if self.signed else 'u'}int{self.bits}"

    @property
    def lowest(self) -> int:
        """The lowest code that the bits can hold."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        """The highest code that the bits can hold."""
        return self.lowest + (1 << self.bits) - 1

    @property
    def is_full(self) -> bool:
        """Whether the bounds are the widest that the bits can hold."""
        return (self.qmin, self.qmax) == (self.lowest, self.highest)

    @property
    def is_packed(self) -> bool:
        """Whether several codes share a byte when stored (2 and 4 bits)."""
        return self.bits in PACKED_BITS

    @property
    def storage(self) -> torch.dtype:
        """The torch dtype that holds one unpacked code."""
        return _STORAGE[max(8, self.bits), self.signed]

    def __repr__(self) -> str:
        return self.name if self.is_full else f"{self.name}[{self.qmin}, {self.qmax}]"


_STORAGE = {
    (8, True): torch.int8,
    (8, False): torch.uint8,
    (16, True): torch.int16,
    (16, False): torch.uint16,
    (32, True): torch.int32,
}

int2 = QDType.with_bits(2, signed=True)
int3 = QDType.with_bits(3, signed=True)
int4 = QDType.with_bits(4, signed=True)
int5 = QDType.with_bits(5, signed=True)
int6 = QDType.with_bits(6, signed=True)
int7 = QDType.with_bits(7, signed=True)
int8 = QDType.with_bits(8, signed=True)
int16 = QDType.with_bits(16, signed=True)
int32 = QDType.with_bits(32, signed=True)
uint2 = QDType.with_bits(2, signed=False)
uint3 = QDType.with_bits(3, signed=False)
uint4 = QDType.with_bits(4, signed=False)
uint5 = QDType.with_bits(5, signed=False)
uint6 = QDType.with_bits(6, signed=False)
uint7 = QDType.with_bits(7, signed=False)
uint8 = QDType.with_bits(8, signed=False)
uint16 = QDType.with_bits(16, signed=False)

_ALL = (
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    int8,
    int16,
    int32,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uint16,
)
_BY_NAME = {dtype.name: dtype for dtype in _ALL}
