"""The pickle machine: plain values come out as Python's unpickler gives them, and nothing runs."""

import collections
import contextlib
import pickle
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from halfstep.errors import FileFormatError
from halfstep.formats import pickle_machine
from halfstep.formats.byte_reader import ByteReader
from halfstep.formats.pickle_machine import read_pickle
from halfstep.formats.pickle_records import Call, Global, Pairs, Record
from tests.strategies import QUICK

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


def read(data: bytes) -> Record:
    """The value of a pickle."""
    return read_pickle(ByteReader(data))[0]


def as_python(record: Record) -> Any:
    """Records of plain values as the values themselves."""
    match record:
        case Pairs(pairs):
            return {as_python(key): as_python(value) for key, value in pairs}
        case list():
            return [as_python(item) for item in record]
        case tuple():
            return tuple(as_python(item) for item in record)
    return record


@given(value=VALUES, protocol=st.integers(3, 5))
@QUICK
def test_plain_values_come_out_as_they_went_in(value: Any, protocol: int) -> None:
    """Every value without classes, in every binary protocol that has bytes."""
    assert as_python(read(pickle.dumps(value, protocol))) == value


@given(data=st.binary(max_size=200))
@QUICK
def test_random_bytes_are_an_error_or_a_value(data: bytes) -> None:
    """No bytes raise anything but FileFormatError."""
    with contextlib.suppress(FileFormatError):
        read(data)


def test_classes_and_calls_are_only_named() -> None:
    """A reduced object is a Call with the function's name, its arguments and its items."""
    record = read(pickle.dumps(collections.OrderedDict(a=1), 2))
    assert isinstance(record, Call)
    assert record.path == "collections.OrderedDict"
    assert record.items.pairs == [("a", 1)]


class Hostile:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.reduced = (function, args)

    def __reduce__(self) -> Any:
        return self.reduced


def test_a_pickle_that_runs_a_command_does_not(tmp_path: Path) -> None:
    """os.system, eval, exec, open and nested calls become names: the canary stays away."""
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').close()"
    hostile = [
        Hostile(__import__("os").system, f"touch {canary}"),
        Hostile(eval, code),
        Hostile(exec, code),
        Hostile(open, str(canary), "w"),
        Hostile(getattr, Hostile(__import__, "os"), "system"),
        Hostile(__import__("subprocess").check_output, ["touch", str(canary)]),
    ]
    for protocol in (2, 4, 5):
        records = read(pickle.dumps(hostile, protocol))
        assert isinstance(records, list)
        assert all(isinstance(record, Call) for record in records)
    assert not canary.exists()
    pickle.loads(pickle.dumps(hostile[0]))  # the same bytes, read by Python
    assert canary.exists(), "the canary would not have seen anything"


BAD = {
    "empty": b"",
    "no stop": b"\x80\x02N",
    "empty stack": b"\x80\x02.",
    "no mark": b"\x80\x02t.",
    "unknown memo": b"\x80\x02h\x07.",
    "unknown step": b"\x80\x02\xff.",
    "text protocol": b"I1\n.",
    "extension registry": b"\x80\x02\x82\x01.",
    "state of a number": b"\x80\x02K\x01}b.",
    "item of a number": b"\x80\x02K\x01K\x01K\x01s.",
    "append to a number": b"\x80\x02K\x01K\x01a.",
    "key without value": b"\x80\x02}(K\x01u.",
    "call without tuple": b"\x80\x02cos\nsystem\nK\x01R.",
    "class without name": b"\x80\x04K\x01K\x02\x93.",
    "endless name": b"\x80\x02c" + b"a" * 10_000,
    "string of 4 GB": b"\x80\x02X\xff\xff\xff\xffabc.",
    "bytes of 16 EB": b"\x80\x04\x8e" + b"\xff" * 8 + b"abc.",
    "integer of 2 GB": b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
    "integer of 300 bytes": b"\x80\x02\x8b\x2c\x01\x00\x00" + b"\x01" * 300 + b".",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_bad_pickles_are_file_format_errors(data: bytes) -> None:
    """Each way to break the machine is refused in words."""
    with pytest.raises(FileFormatError, match=r"pickle|truncated"):
        read(data)


def test_nesting_needs_no_stack() -> None:
    """Hundreds of thousands of nested tuples, lists and marks are read, and freed again."""
    for nested in (
        b")" + b"\x85" * 300_000,
        b"]" * 300_000 + b"a" * 299_999,
        b"(" * 300_000 + b"K\x01",
    ):
        assert read(b"\x80\x02" + nested + b".") is not None


def test_the_number_of_steps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of more steps than the cap is refused, so memory is bounded too."""
    monkeypatch.setattr(pickle_machine, "MAX_OPCODES", 1000)
    with pytest.raises(FileFormatError, match="more than 1000 steps"):
        read(b"\x80\x02" + b"N" * 2000 + b".")


def test_the_reader_stops_after_the_pickle() -> None:
    """Several pickles in a row are read one by one."""
    reader = ByteReader(pickle.dumps([1], 2) + pickle.dumps("two", 2))
    assert read_pickle(reader)[0] == [1]
    assert read_pickle(reader)[0] == "two"


def test_globals_are_never_imported() -> None:
    """A module that does not exist is only a name."""
    record = read(b"\x80\x02cno.such.module\nthing\n.")
    assert isinstance(record, Global)
    assert record.path == "no.such.module.thing"
