"""A QSpec as JSON, for the header of a file."""

from typing import Any, Final

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.spec import Granularity, PerChannel, PerGroup, PerTensor, PerToken, QDType, QSpec

_FLAGS: Final = ("symmetric", "narrow_range", "float_zero_point")


def spec_to_json(spec: QSpec) -> dict[str, Any]:
    """The spec as plain JSON values, flags that are off left out.

    >>> import halfstep as hs
    >>> spec_to_json(hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True))
    {'dtype': 'int4', 'granularity': {'kind': 'per_channel', 'axis': 0}, 'symmetric': True}
    """
    return {
        "dtype": str(spec.dtype),
        "granularity": _granularity_to_json(spec.granularity),
        **{flag: True for flag in _FLAGS if getattr(spec, flag)},
    }


def _granularity_to_json(granularity: Granularity) -> dict[str, Any]:
    match granularity:
        case PerChannel(axis):
            return {"kind": "per_channel", "axis": axis}
        case PerGroup(axis, size):
            return {"kind": "per_group", "axis": axis, "size": size}
        case PerToken():
            return {"kind": "per_token"}
        case _:
            return {"kind": "per_tensor"}


def spec_from_json(value: object) -> QSpec:
    """The spec that ``spec_to_json`` wrote; ``FileFormatError`` for anything else.

    >>> spec_from_json({"dtype": "uint8", "granularity": {"kind": "per_channel", "axis": 0}})
    QSpec(uint8, PerChannel(axis=0))
    """
    match value:
        case {"dtype": str(dtype), "granularity": {"kind": str()} as granularity, **rest}:
            flags = {str(name): flag for name, flag in rest.items() if isinstance(flag, bool)}
            if len(flags) == len(rest) and set(flags) <= set(_FLAGS):
                return _spec(dtype, granularity, flags)
    raise FileFormatError(f"its quantization format is not readable: {str(value)[:200]}")


def _spec(dtype: str, granularity: dict[str, Any], flags: dict[str, Any]) -> QSpec:
    try:
        return QSpec(QDType.parse(dtype), _granularity_from_json(granularity), **flags)
    except HalfstepError as error:
        raise FileFormatError(f"its quantization format is impossible: {error}") from error


def _granularity_from_json(value: dict[str, Any]) -> Granularity:
    match value:
        case {"kind": "per_tensor"}:
            return PerTensor()
        case {"kind": "per_token"}:
            return PerToken()
        case {"kind": "per_channel", "axis": axis}:
            return PerChannel(axis)
        case {"kind": "per_group", "axis": axis, "size": size}:
            return PerGroup(axis, size)
    raise FileFormatError(f"its granularity is unknown: {str(value)[:200]}")
