"""Which elements of a tensor share one scale: the shape of ``scale`` as data.

With x of shape (d0, d1, ...), ``scale`` has as many dimensions as x, and each of its sizes is 1
(shared), d (kept) or a divisor of d (cut into groups).
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError

Shape: TypeAlias = tuple[int, ...]


def normalize_axis(axis: int, ndim: int, name: str = "axis") -> int:
    """The axis counted from the front: ``axis`` or ``axis + ndim``.

    Raises ``ArgumentError`` when a tensor of ``ndim`` dimensions has no such axis.

    >>> normalize_axis(-1, 4)
    3
    """
    if not -ndim <= axis < ndim:
        allowed = f"{-ndim} to {ndim - 1}" if ndim else "none: it has no dimensions"
        raise ArgumentError(
            f"{name}={axis} is not an axis of a {ndim}-dimensional tensor: allowed is {allowed}"
        )
    return axis % ndim


def _check_integer(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(
            f"{name}={value!r} is not an integer: give a position such as 0 or -1"
        )


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for the whole tensor: ``scale.shape == (1, 1, ...)``.

    >>> PerTensor().scale_shape((2, 3))
    (1, 1)
    """

    @property
    def axis(self) -> None:
        """There is no axis."""
        return None

    def scale_shape(self, shape: Shape) -> Shape:
        """The shape of ``scale`` for a tensor of this shape."""
        return (1,) * len(shape)

    def normalized(self, ndim: int) -> "PerTensor":
        """The same granularity with axes counted from the front."""
        return self


@dataclass(frozen=True, slots=True)
class PerChannel:
    """One scale for each index of ``axis``, the axis that is kept.

    ``scale.shape == (1, ..., C, ..., 1)`` with C at ``axis``; the axis may be negative.

    >>> PerChannel(1).scale_shape((2, 4, 5, 3))
    (1, 4, 1, 1)
    """

    axis: int

    def __post_init__(self) -> None:
        _check_integer(self.axis, "axis")

    def scale_shape(self, shape: Shape) -> Shape:
        """The shape of ``scale`` for a tensor of this shape.

        Raises ``ArgumentError`` where the tensor has no such axis.
        """
        axis = normalize_axis(self.axis, len(shape))
        return tuple(size if dim == axis else 1 for dim, size in enumerate(shape))

    def normalized(self, ndim: int) -> "PerChannel":
        """The same granularity with axes counted from the front."""
        return replace(self, axis=normalize_axis(self.axis, ndim))


@dataclass(frozen=True, slots=True)
class PerGroup:
    """One scale for each run of ``size`` values along ``axis``, the axis that is cut.

    All other axes are kept: a weight (O, I) cut along axis 1 has ``scale.shape == (O, I / size)``.
    This is the blocked form of ONNX's QuantizeLinear.

    >>> PerGroup(1, 32).scale_shape((64, 128))
    (64, 4)
    """

    axis: int
    size: int

    def __post_init__(self) -> None:
        _check_integer(self.axis, "axis")
        _check_integer(self.size, "size")
        if self.size < 1:
            raise ArgumentError(f"size={self.size} is not a group size: allowed is 1 or more")

    def scale_shape(self, shape: Shape) -> Shape:
        """The shape of ``scale`` for a tensor of this shape.

        Raises ``GranularityError`` where ``size`` does not divide the axis, and ``ArgumentError``
        where the tensor has no such axis.
        """
        axis = normalize_axis(self.axis, len(shape))
        if shape[axis] % self.size:
            divisors = [n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0]
            nearest = min(divisors, key=lambda n: abs(n - self.size))
            raise GranularityError(
                f"group size {self.size} does not divide axis {axis}, which has {shape[axis]} "
                f"values: use a divisor such as {nearest}, or pad the axis"
            )
        return tuple(n // self.size if dim == axis else n for dim, n in enumerate(shape))

    def normalized(self, ndim: int) -> "PerGroup":
        """The same granularity with axes counted from the front."""
        return replace(self, axis=normalize_axis(self.axis, ndim))


@dataclass(frozen=True, slots=True)
class PerToken:
    """One scale for each row: all axes but the last are kept, ``scale.shape == (..., 1)``.

    >>> PerToken().scale_shape((8, 16, 384))
    (8, 16, 1)
    """

    @property
    def axis(self) -> None:
        """There is no single axis."""
        return None

    def scale_shape(self, shape: Shape) -> Shape:
        """The shape of ``scale`` for a tensor of this shape.

        Raises ``GranularityError`` for a shape of no dimensions, which has no rows.
        """
        if not shape:
            raise GranularityError(
                "a 0-dimensional tensor has no rows: use PerTensor() for a single number"
            )
        return (*shape[:-1], 1)

    def normalized(self, ndim: int) -> "PerToken":
        """The same granularity with axes counted from the front."""
        return self


Granularity: TypeAlias = PerTensor | PerChannel | PerGroup | PerToken
