"""QSpec: illegal combinations cannot be constructed, legal ones are values."""

import copy
import dataclasses
import json
import pickle
import re

import pytest
import torch
from hypothesis import given

from halfstep import spec as names
from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.spec import (
    PerChannel,
    PerGroup,
    PerTensor,
    QDType,
    QSpec,
    int4,
    int8,
    int16,
    int32,
    uint8,
)
from tests.strategies import DTYPES, QUICK, specs

SHAPE = (2, 4, 6)


@QUICK
@given(specs(SHAPE))
def test_a_spec_is_a_frozen_value(spec: QSpec) -> None:
    """Equality, hash, copies, pickles and ``eval(repr())`` go by value; nothing can be changed."""
    for twin in (copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert twin == spec
        assert hash(twin) == hash(spec)
    for field in dataclasses.fields(spec):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(spec, field.name, getattr(spec, field.name))
    if spec.dtype.is_full:
        assert eval(repr(spec), vars(names).copy()) == spec  # noqa: S307  # the text is our own


@QUICK
@given(specs(SHAPE))
def test_bounds_lie_inside_the_dtype(spec: QSpec) -> None:
    """A spec never uses a code that its dtype does not have, and always at least two."""
    assert spec.dtype.qmin <= spec.qmin < spec.qmax == spec.dtype.qmax
    assert spec.qmin - spec.dtype.qmin == spec.narrow_range


@QUICK
@given(specs(SHAPE))
def test_normalized_changes_only_the_axis(spec: QSpec) -> None:
    """Counting axes from the front changes neither the format nor the shape of ``scale``."""
    normalized = spec.normalized(len(SHAPE))
    assert normalized.with_granularity(spec.granularity) == spec
    assert normalized.granularity.scale_shape(SHAPE) == spec.granularity.scale_shape(SHAPE)
    assert normalized.axis is None or normalized.axis >= 0


def test_defaults() -> None:
    """The plain spec is per-tensor, affine, full range, with an integer zero point."""
    spec = QSpec(int8)
    assert spec.granularity == PerTensor()
    assert (spec.symmetric, spec.narrow_range, spec.float_zero_point) == (False,) * 3
    assert (spec.qmin, spec.qmax, spec.axis) == (-128, 127, None)
    assert spec.zero_point_dtype == torch.int32
    assert QSpec(uint8, float_zero_point=True).zero_point_dtype == torch.float32
    assert QSpec(torch.int8) == spec


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (QSpec(int8), "QSpec(int8)"),
        (QSpec(int4, PerGroup(1, 32), symmetric=True), None),
        (QSpec(int8.within(-3, 100)), "QSpec(int8[-3, 100])"),
        (QSpec(uint8, PerChannel(0), float_zero_point=True), None),
        (
            QSpec(int8, PerChannel(-1), symmetric=True, narrow_range=True),
            "QSpec(int8, PerChannel(axis=-1), symmetric=True, narrow_range=True)",
        ),
    ],
)
def test_repr_says_what_differs_from_the_default(spec: QSpec, text: str | None) -> None:
    """A spec prints as the shortest call that makes it."""
    assert repr(spec) == (text or repr(spec))
    assert ("symmetric" in repr(spec)) == spec.symmetric
    assert ("PerTensor" in repr(spec)) is False


@pytest.mark.parametrize("dtype", [d for d in DTYPES if not d.signed], ids=str)
def test_symmetric_needs_a_signed_dtype(dtype: QDType) -> None:
    """Symmetric means zero point 0, which leaves an unsigned format no negative code."""
    text = (
        f"symmetric=True needs codes on both sides of zero, and {dtype} has [0, {dtype.qmax}]: "
        "use a signed dtype or symmetric=False"
    )
    with pytest.raises(ArgumentError, match=re.escape(text)):
        QSpec(dtype, symmetric=True)


@pytest.mark.parametrize("bounds", [(0, 127), (-128, 0), (5, 9)])
def test_symmetric_needs_both_signs(bounds: tuple[int, int]) -> None:
    """A signed format narrowed to one side of zero cannot be symmetric either."""
    with pytest.raises(ArgumentError, match="symmetric=True needs codes on both sides of zero"):
        QSpec(int8.within(*bounds), symmetric=True)


@pytest.mark.parametrize("dtype", [uint8, int8.within(-100, 100)], ids=str)
def test_narrow_range_needs_a_full_signed_dtype(dtype: QDType) -> None:
    """Narrow range drops the lowest code, so there must be one that is lower than -qmax."""
    text = (
        f"narrow_range=True drops the lowest code of a full signed dtype, and {dtype} is not one: "
        "give the bounds with dtype.within(qmin, qmax) instead"
    )
    with pytest.raises(ArgumentError, match=re.escape(text)):
        QSpec(dtype, narrow_range=True)


@pytest.mark.parametrize(
    ("dtype", "symmetric"), [(int8, True), (int16, False), (int32, False)], ids=str
)
def test_float_zero_point_is_asymmetric_and_small(dtype: QDType, *, symmetric: bool) -> None:
    """The float-zero-point form has no symmetric variant and at most 8 bits."""
    text = (
        "float_zero_point=True is the asymmetric form of at most 8 bits: leave out symmetric=True, "
        "and use a dtype of at most 8 bits"
    )
    with pytest.raises(ArgumentError, match=text):
        QSpec(dtype, symmetric=symmetric, float_zero_point=True)


@pytest.mark.parametrize("wrong", [1, "per_channel", PerChannel, (1,)])
def test_other_granularities_are_refused(wrong: object) -> None:
    """What is no granularity is refused, with the list of those that are."""
    text = (
        f"granularity={wrong!r} is not a granularity: use PerTensor(), PerChannel(axis), "
        "PerGroup(axis, size) or PerToken()"
    )
    with pytest.raises(ArgumentTypeError, match=re.escape(text)):
        QSpec(int8, wrong)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("flag", ["symmetric", "narrow_range", "float_zero_point"])
def test_flags_are_booleans(flag: str) -> None:
    """A flag of another type, such as the word "no", is refused."""
    with pytest.raises(ArgumentTypeError, match=f"{flag}='no' is not a bool: use True or False"):
        QSpec(int8, **{flag: "no"})  # type: ignore[arg-type]  # what is tested


def test_flags_are_given_by_name() -> None:
    """Flags cannot be given by position, where nobody could read them."""
    with pytest.raises(TypeError, match="positional"):
        QSpec(int8, PerTensor(), True)  # type: ignore[call-arg]  # what is tested


@QUICK
@given(specs(SHAPE))
def test_plain_data_and_back(spec: QSpec) -> None:
    """``from_dict`` reads what ``to_dict`` wrote, through JSON too."""
    assert QSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"dtype": 8},
        {"dtype": "int8", "granularity": "PerPixel"},
        {"dtype": "int8", "granularity": "PerChannel"},
        {"dtype": "int8", "granularity": "PerTensor", "axis": 0},
        {"dtype": "int8", "symmetric": "no"},
        {"dtype": "int8", "colour": "red"},
    ],
    ids=str,
)
def test_plain_data_that_is_no_format_is_refused(plain: dict[str, object]) -> None:
    """Missing, unknown or mistyped fields are refused, and the error shows them."""
    with pytest.raises(ArgumentError, match=re.escape(f"{plain} is not a format: ")):
        QSpec.from_dict(plain)
