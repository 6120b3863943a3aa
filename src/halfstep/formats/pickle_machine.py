"""Pickle bytes to plain records, with nothing executed and nothing imported.

A pickle is a program for a small stack machine. This module runs that machine over data only: a
class or function that the pickle names becomes a ``Global``, calling one becomes a ``Call`` that
remembers function, arguments and state. What the records mean is decided by whoever reads them.

Python's own unpickler restricted by ``find_class`` was not used: it still calls what the list
allows, with arguments from the file, runs ``__setstate__``, ``append`` and ``__setitem__`` of the
results, hashes keys chosen by the file, and allocates what a length field asks for. Here no object
of the file has behaviour, and time and memory are linear in the bytes read, with a cap.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from halfstep.errors import FileFormatError
from halfstep.formats.byte_reader import ByteReader
from halfstep.formats.pickle_records import Call, Global, Pairs, Persistent, Record

MAX_OPCODES: Final = 1 << 23
MAX_LONG_BYTES: Final = 256


class _Machine:
    """The stack machine: ``stack`` is on top of ``marks``, the stacks below each MARK."""

    def __init__(self, reader: ByteReader) -> None:
        self.reader = reader
        self.stack: list[Record] = []
        self.marks: list[list[Record]] = []
        self.memo: dict[int, Record] = {}
        self.persistent: list[Persistent] = []

    def pop(self) -> Record:
        if not self.stack:
            raise FileFormatError("corrupt pickle: it takes a value from an empty stack")
        return self.stack.pop()

    def top(self) -> Record:
        if not self.stack:
            raise FileFormatError("corrupt pickle: it uses the top of an empty stack")
        return self.stack[-1]

    def pop_mark(self) -> list[Record]:
        if not self.marks:
            raise FileFormatError("corrupt pickle: it closes a group that was never opened")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def pop_args(self) -> tuple[Record, ...]:
        args = self.pop()
        if not isinstance(args, tuple):
            raise FileFormatError("corrupt pickle: the arguments of a call are not a tuple")
        return args

    def pop_text(self) -> str:
        text = self.pop()
        if not isinstance(text, str):
            raise FileFormatError("corrupt pickle: the name of a class is not text")
        return text


_Step: TypeAlias = Callable[[_Machine], None]


def read_pickle(reader: ByteReader) -> tuple[Record, list[Persistent]]:
    r"""The value of one pickle, and the references in it, in file order; the reader stops after it.

    Raises ``FileFormatError`` for anything but a well-formed binary pickle (protocols 1 to 5) of
    at most ``MAX_OPCODES`` steps.

    >>> value, references = read_pickle(ByteReader(b"\x80\x02]q\x00(K\x01K\x02e."))
    >>> value
    [1, 2]
    """
    machine = _Machine(reader)
    for _ in range(MAX_OPCODES):
        code = reader.unsigned(1)
        if code == _STOP:
            return machine.pop(), machine.persistent
        step = _STEPS.get(code)
        if step is None:
            raise FileFormatError(
                f"corrupt pickle: step {chr(code)!r} at byte {reader.position - 1} is unknown or "
                "of the old text protocol: save the file again with the default pickle protocol"
            )
        step(machine)
    raise FileFormatError(f"the pickle has more than {MAX_OPCODES} steps, the most that are read")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # a byte string of Python 2


def _long(reader: ByteReader, width: int) -> int:
    size = reader.unsigned(width)
    if size > MAX_LONG_BYTES:
        raise FileFormatError(
            f"the pickle holds an integer of {size} bytes: {MAX_LONG_BYTES} are read"
        )
    return int.from_bytes(reader.take(size), "little", signed=True)


def _float(reader: ByteReader) -> float:
    value: float = struct.unpack(">d", reader.take(8))[0]
    return value


def _push(read: Callable[[ByteReader], Record]) -> _Step:
    def step(machine: _Machine) -> None:
        machine.stack.append(read(machine.reader))

    return step


def _sized(width: int, convert: Callable[[bytes], Record]) -> _Step:
    return _push(lambda reader: convert(reader.take(reader.unsigned(width))))


def _mark(machine: _Machine) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


def _pop(machine: _Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _pop_group(machine: _Machine) -> None:
    machine.pop_mark()


def _close(convert: Callable[[list[Record]], Record]) -> _Step:
    def step(machine: _Machine) -> None:
        items = machine.pop_mark()
        machine.stack.append(convert(items))

    return step


def _tuple_of(count: int) -> _Step:
    def step(machine: _Machine) -> None:
        items = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(items)))

    return step


def _pairs(items: list[Record]) -> Pairs:
    if len(items) % 2:
        raise FileFormatError("corrupt pickle: a dict has a key without a value")
    return Pairs(list(zip(items[::2], items[1::2], strict=True)))


def _extend(machine: _Machine, items: Iterable[Record]) -> None:
    target = machine.top()
    if isinstance(target, Call):
        target.elements.extend(items)
    elif isinstance(target, list):
        target.extend(items)
    else:
        raise FileFormatError("corrupt pickle: it appends to something that is no list")


def _update(machine: _Machine, items: list[Record]) -> None:
    target = machine.top()
    if not isinstance(target, Call | Pairs):
        raise FileFormatError("corrupt pickle: it sets an item of something that is no dict")
    (target.items if isinstance(target, Call) else target).pairs.extend(_pairs(items).pairs)


def _set_item(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _update(machine, [key, value])


def _put(width: int) -> _Step:
    def step(machine: _Machine) -> None:
        machine.memo[machine.reader.unsigned(width)] = machine.top()

    return step


def _memoize(machine: _Machine) -> None:
    machine.memo[len(machine.memo)] = machine.top()


def _get(width: int) -> _Step:
    def step(machine: _Machine) -> None:
        index = machine.reader.unsigned(width)
        if index not in machine.memo:
            raise FileFormatError(f"corrupt pickle: it recalls value {index}, which was not stored")
        machine.stack.append(machine.memo[index])

    return step


def _stack_global(machine: _Machine) -> None:
    name, module = machine.pop_text(), machine.pop_text()
    machine.stack.append(Global(module, name))


def _call(machine: _Machine) -> None:
    args, function = machine.pop_args(), machine.pop()
    machine.stack.append(Call(function, args))


def _call_with_keywords(machine: _Machine) -> None:
    keywords, args, function = machine.pop(), machine.pop_args(), machine.pop()
    machine.stack.append(Call(function, (*args, keywords)))


def _call_marked(machine: _Machine) -> None:
    function, *args = machine.pop_mark() or [None]
    machine.stack.append(Call(function, tuple(args)))


def _build(machine: _Machine) -> None:
    state, target = machine.pop(), machine.top()
    if not isinstance(target, Call):
        raise FileFormatError("corrupt pickle: it gives state to something that is no object")
    target.state = state


def _persistent(machine: _Machine) -> None:
    reference = Persistent(machine.pop())
    machine.persistent.append(reference)
    machine.stack.append(reference)


_STOP: Final = ord(".")
_STEPS: Final[dict[int, _Step]] = {
    0x80: lambda machine: machine.reader.skip(1),  # the protocol number
    0x95: lambda machine: machine.reader.skip(8),  # the length of a frame, only a hint
    ord("N"): _push(lambda reader: None),
    0x88: _push(lambda reader: True),
    0x89: _push(lambda reader: False),
    ord("J"): _push(lambda reader: int.from_bytes(reader.take(4), "little", signed=True)),
    ord("K"): _push(lambda reader: reader.unsigned(1)),
    ord("M"): _push(lambda reader: reader.unsigned(2)),
    0x8A: _push(lambda reader: _long(reader, 1)),
    0x8B: _push(lambda reader: _long(reader, 4)),
    ord("G"): _push(_float),
    ord("U"): _sized(1, _text),
    ord("T"): _sized(4, _text),
    0x8C: _sized(1, _text),
    ord("X"): _sized(4, _text),
    0x8D: _sized(8, _text),
    ord("C"): _sized(1, bytes),
    ord("B"): _sized(4, bytes),
    0x8E: _sized(8, bytes),
    0x96: _sized(8, bytes),
    ord(")"): _push(lambda reader: ()),
    ord("]"): _push(lambda reader: []),
    ord("}"): _push(lambda reader: Pairs()),
    0x8F: _push(lambda reader: []),  # a set, kept in file order
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): _pop_group,
    ord("2"): lambda machine: machine.stack.append(machine.top()),
    ord("t"): _close(tuple),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("l"): _close(list),
    ord("d"): _close(_pairs),
    0x91: _close(tuple),  # a frozen set
    ord("a"): lambda machine: _extend(machine, [machine.pop()]),
    ord("e"): lambda machine: _extend(machine, machine.pop_mark()),
    0x90: lambda machine: _extend(machine, machine.pop_mark()),
    ord("s"): _set_item,
    ord("u"): lambda machine: _update(machine, machine.pop_mark()),
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: _memoize,
    ord("h"): _get(1),
    ord("j"): _get(4),
    ord("c"): _push(lambda reader: Global(_text(reader.line()), _text(reader.line()))),
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,
    0x92: _call_with_keywords,
    ord("o"): _call_marked,
    ord("b"): _build,
    ord("Q"): _persistent,
}
