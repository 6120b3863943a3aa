"""Integer formats: bounds, names, and what cannot be built."""

import copy
import dataclasses
import pickle
import re

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep import spec
from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.spec import QDType, int8, int16, int32, uint8, uint16
from tests.strategies import DTYPES, QUICK, dtypes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bounds_are_those_of_the_bits(dtype: QDType) -> None:
    """A full format uses every pattern of its bits, two's complement when signed."""
    assert dtype.qmax - dtype.qmin + 1 == 2**dtype.bits
    assert dtype.qmin == (-(2 ** (dtype.bits - 1)) if dtype.signed else 0)
    assert dtype.is_full
    assert getattr(spec, dtype.name) is dtype or getattr(spec, dtype.name) == dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_storage_holds_every_code(dtype: QDType) -> None:
    """The storage dtype is the narrowest of torch's that holds every code."""
    info = torch.iinfo(dtype.storage)
    assert info.min <= dtype.qmin
    assert info.max >= dtype.qmax
    assert info.bits == max(8, dtype.bits)
    assert dtype.is_packed == (dtype.bits in {2, 4})


@QUICK
@given(dtypes())
def test_parse_reads_what_repr_prints(dtype: QDType) -> None:
    """``parse`` inverts ``str`` and ``repr``, bounds included."""
    assert QDType.parse(str(dtype)) == dtype
    assert QDType.parse(repr(dtype)) == dtype


@QUICK
@given(dtypes())
def test_a_format_is_a_value(dtype: QDType) -> None:
    """Equality, hash, copies and pickles go by value."""
    for twin in (copy.copy(dtype), copy.deepcopy(dtype), pickle.loads(pickle.dumps(dtype))):
        assert twin == dtype
        assert hash(twin) == hash(dtype)


@QUICK
@given(dtypes(), st.data())
def test_within_keeps_everything_but_the_bounds(dtype: QDType, data: st.DataObject) -> None:
    """Narrower bounds keep bits, sign and storage, and may be widened again."""
    qmin = data.draw(st.integers(dtype.lowest, dtype.highest - 1))
    qmax = data.draw(st.integers(qmin + 1, dtype.highest))
    narrowed = dtype.within(qmin, qmax)
    assert (narrowed.qmin, narrowed.qmax) == (qmin, qmax)
    assert (narrowed.bits, narrowed.signed, narrowed.storage) == (
        dtype.bits,
        dtype.signed,
        dtype.storage,
    )
    assert narrowed.within(dtype.qmin, dtype.qmax) == dtype


@pytest.mark.parametrize(
    ("qmin", "qmax"), [(-129, 0), (0, 128), (5, 5), (5, 4), (-300, 300), (127, 128)]
)
def test_bounds_outside_the_format_are_refused(qmin: int, qmax: int) -> None:
    """Bounds must lie inside the format and leave at least two codes."""
    text = (
        f"int8 holds [-128, 127], so it cannot be narrowed to [{qmin}, {qmax}]: "
        "choose bounds inside it"
    )
    with pytest.raises(ArgumentError, match=re.escape(text)):
        int8.within(qmin, qmax)


@pytest.mark.parametrize("bound", [1.5, "3", None, True])
def test_bounds_that_are_no_integers_are_refused(bound: object) -> None:
    """A code is an integer, so a bound is one."""
    with pytest.raises(ArgumentTypeError, match=rf"qmin={bound!r} is not an integer"):
        int8.within(bound, 100)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("bits", "signed"), [(0, True), (1, True), (9, False), (12, True), (32, False), (64, True)]
)
def test_widths_that_nothing_stores_are_refused(bits: int, *, signed: bool) -> None:
    """2 to 8 and 16 bits of either sign, and 32 signed ones, are all there is."""
    with pytest.raises(ArgumentError, match=rf"bits={bits} .*: use one of int2, .*, uint16"):
        QDType.with_bits(bits, signed=signed)


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        (torch.int8, int8),
        (torch.uint8, uint8),
        (torch.int16, int16),
        (torch.uint16, uint16),
        (torch.int32, int32),
        (int8.within(-3, 100), int8.within(-3, 100)),
    ],
    ids=str,
)
def test_of_takes_torch_dtypes(given_dtype: QDType | torch.dtype, expected: QDType) -> None:
    """A torch integer dtype stands for the full format that it stores."""
    assert QDType.of(given_dtype) == expected


@pytest.mark.parametrize("wrong", [torch.float32, torch.int64, torch.bool, "int8", 8, None])
def test_of_refuses_the_rest(wrong: object) -> None:
    """What is no integer format is refused, with the list of those that are."""
    text = f"dtype={wrong!r} is not an integer format: use one of int2, int3, "
    with pytest.raises(ArgumentTypeError, match=re.escape(text)):
        QDType.of(wrong)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("name", ["int1", "int9", "uint32", "float8", "", "INT8", "[0, 1]"])
def test_parse_refuses_unknown_names(name: str) -> None:
    """An unknown name is refused, with the list of the known ones."""
    with pytest.raises(
        ArgumentError, match=re.escape(f"{name!r} is not an integer format: use int2")
    ):
        QDType.parse(name)


@pytest.mark.parametrize("name", ["int8[1]", "int8[a, b]", "int8[1, 2, 3]", "int8[", "int8[1 2]"])
def test_parse_refuses_unreadable_bounds(name: str) -> None:
    """Bounds that cannot be read are refused, with how to write them."""
    text = f"{name!r} has unreadable bounds: write them as int8[-100, 100]"
    with pytest.raises(ArgumentError, match=re.escape(text)):
        QDType.parse(name)


def test_a_format_cannot_be_changed() -> None:
    """Formats are frozen and take no further attributes."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        int8.qmin = 0  # type: ignore[misc]  # what is tested
    # CPython 3.10 and 3.11 raise TypeError here for a frozen class with slots.
    with pytest.raises((AttributeError, TypeError)):
        int8.colour = "red"  # type: ignore[attr-defined]  # what is tested
