"""Programs as JSON: equal when read again, and nothing but programs is read."""

import dataclasses
import json
import math
import struct
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.errors import ArgumentTypeError, FileFormatError
from halfstep.formats.plain_sizes import condition_from_plain, condition_to_plain
from halfstep.formats.plain_trees import from_plain, to_plain
from halfstep.formats.quantized_json import part_from_plain, part_to_plain
from halfstep.formats.tree_types import Fields
from halfstep.graph.edges import Edge
from halfstep.graph.export import export
from halfstep.graph.program import Input, Program, Step, TorchName
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.trees import Branch, Value, join, split
from halfstep.spec import PerChannel, QSpec, int4, int8, uint8
from tests.strategies import THOROUGH

RELU = export(torch.nn.ReLU(), (torch.ones(2, 3),))


@dataclass
class Output:
    """What a model returns."""

    logits: Any
    hidden: Any = None


class Pair(NamedTuple):
    """What a model returns."""

    first: Any
    second: Any


def through_json(plain: Any) -> Any:
    """What a file gives back."""
    return json.loads(json.dumps(plain, allow_nan=False))


def again(part: Any) -> Any:
    """The program as a file gives it back."""
    kept: dict[str, torch.Tensor] = {}

    def keep(name: str, tensor: torch.Tensor) -> str:
        kept[name] = tensor
        return name

    plain = through_json(part_to_plain(part, keep))
    return part_from_plain(plain, kept.__getitem__)


def bits(leaf: Any) -> Any:
    """A leaf in a form in which only the same bits are equal."""
    if isinstance(leaf, float):
        return "nan" if math.isnan(leaf) else struct.pack("<d", leaf)
    if isinstance(leaf, complex):
        return bits(leaf.real), bits(leaf.imag)
    return (type(leaf), tuple(map(bits, leaf))) if isinstance(leaf, tuple) else (type(leaf), leaf)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.floats(width=32),
    st.complex_numbers(),
    st.text(),
    st.builds(Value, st.text()),
    st.just(TorchName("dtype", "bfloat16")),
    st.just(TorchName("device", "cpu")),
    st.just(TorchName("memory_format", "channels_last")),
    st.just(QSpec(int4, PerChannel(0))),
    st.builds(lambda scale: Edge(QSpec(uint8), scale, 3), st.floats(2.0**-100, 2.0**100, width=32)),
)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8))
@THOROUGH
def test_arguments_come_back_bit_for_bit(tree: Any) -> None:
    """Numbers of every kind, names and formats, in tuples of tuples."""
    assert bits(from_plain(through_json(to_plain(tree)))) == bits(tree)


CONTAINERS: dict[str, Any] = {
    "tuple": (1, (2.0, None)),
    "list": [1, [2]],
    "dict": {"a": 1, 2: (3,), None: 4},
    "ordered": OrderedDict(b=1, a=2),
    "dataclass": Output(1, [2]),
    "named": Pair(1, Output(2)),
    "of torch": torch.return_types.max((1, 2)),
}


@pytest.mark.parametrize("tree", CONTAINERS.values(), ids=CONTAINERS)
def test_containers_come_back_in_their_types(tree: Any) -> None:
    """What a model takes and returns, of loaded classes."""
    made = join(from_plain(through_json(to_plain(split(tree)))))
    assert type(made) is type(tree)
    assert repr(made) == repr(tree)


def test_a_class_that_is_not_loaded_gives_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module is imported; the fields are there as attributes and by key."""
    plain = through_json(to_plain(split(Output(1, Pair(2, 3)))))
    monkeypatch.delitem(sys.modules, __name__)
    made = join(from_plain(plain))
    assert type(made) is Fields
    assert (made.logits, made["hidden"].second) == (1, 3)
    with pytest.raises(AttributeError, match="there are logits, hidden"):
        made.other  # noqa: B018  (the access is what is tested)
    assert __name__ not in sys.modules


CLASSES = [
    ("subprocess:Popen", "dataclass", "args"),
    ("shelve:DbfilenameShelf", "mapping", "filename"),
    ("os:system", "dataclass", "command"),
    (f"{__name__}:Output", "dataclass", "logits"),
    (f"{__name__}:Output.__init__", "dataclass", "logits"),
    ("builtins:dict", "dataclass", "a"),
]


@pytest.mark.parametrize(("name", "kind", "key"), CLASSES)
def test_only_classes_of_the_same_fields_are_made(name: str, kind: str, key: str) -> None:
    """A class that a file names is a dataclass or named tuple of just these fields, or not used."""
    made = join(from_plain({"class": name, "kind": kind, "items": [[key, "touch /tmp/x"]]}))
    assert type(made) in (Fields, dict)
    assert dict(made) == {key: "touch /tmp/x"}


FIELDS = {
    Program: "inputs arguments outputs steps parameters constants conditions training",
    Step: "name op args kwargs source",
    Input: "value dtype ndim",
    Quantized: "program edges decisions weights shapes dtypes",
    Decision: "execution reason weight input",
    Edge: "spec scale zero_point",
}


@pytest.mark.parametrize("cls", FIELDS, ids=lambda cls: cls.__name__)
def test_every_field_is_known(cls: Any) -> None:
    """A field that is added must be written to files, and read."""
    assert [field.name for field in dataclasses.fields(cls)] == FIELDS[cls].split()


def test_a_calibrated_program_comes_back() -> None:
    """All of its tables, the scale in every bit."""
    scale = torch.tensor(0.1).item()
    quantized = Quantized(
        RELU,
        {"input": Edge(QSpec(uint8), scale, 7)},
        {"relu": Decision(Execution.DYNAMIC, "why", QSpec(int8), QSpec(uint8))},
        {},
        {"relu": (2, 3)},
        {"relu": "bfloat16"},
    )
    read = again(quantized)
    assert str(read.program) == str(RELU)
    for name in FIELDS[Quantized].split()[1:]:
        assert getattr(read, name) == getattr(quantized, name)
    assert torch.tensor(read.edges["input"].scale) == torch.tensor(0.1)


def broken(**changes: Any) -> Any:
    """The plain form of a program with other parts."""
    plain = through_json(part_to_plain(RELU, lambda name, tensor: name))
    plain["program"] |= changes
    return plain


STEP = {"name": "relu", "op": "aten.relu.default", "args": [{"value": "input"}]}
BAD: dict[str, tuple[Any, str]] = {
    "no program": ({"steps": []}, "a program is incomplete"),
    "no steps": (broken(steps=None), "a program is incomplete"),
    "saves": (broken(steps=[STEP | {"op": "aten.save.default"}]), "aten.save.default"),
    "maps a file": (broken(steps=[STEP | {"op": "aten.from_file.default"}]), "aten.from_file"),
    "other package": (broken(steps=[STEP | {"op": "mine.relu.default"}]), "mine.relu.default"),
    "no operator": (broken(steps=[STEP | {"op": "aten.nonsense.default"}]), "aten.nonsense"),
    "python": (broken(steps=[STEP | {"op": "os.system"}]), "os.system"),
    "unchecked": (
        broken(steps=[STEP | {"op": "aten._sparse_coo_tensor_unsafe.default"}]),
        "unsafe",
    ),
    "undefined": (broken(steps=[STEP | {"args": [{"value": "nobody"}]}]), "nobody"),
    "twice": (broken(steps=[STEP, STEP]), "a second time"),
    "more in a step": (broken(steps=[STEP | {"more": 1}]), "a step needs"),
    "tag": (broken(outputs={"pickle": "x"}), "unknown kind 'pickle'"),
    "form": (broken(outputs={"value": "x", "more": 1}), "unknown form"),
    "device": (broken(outputs={"device": "moon"}), "moon"),
    "dtype": (broken(inputs=[["input", "load", 2]]), "torch has no dtype load"),
    "ranks": (broken(inputs=[["input", "float32", 100]]), "number of dimensions"),
    "arguments": (broken(arguments=[1]), "no names and values"),
    "kind": (broken(outputs={"class": "a:b", "kind": "c", "items": []}), "unknown kind 'c'"),
    "items": (broken(outputs={"dict": [[1]]}), "no pairs"),
    "keys": (broken(outputs={"dict": [[[1], 2]]}), "no names or numbers"),
    "integer": (broken(outputs=1 << 70), "71 bits"),
    "deep": (broken(outputs=json.loads("[" * 100 + "]" * 100)), "nest deeper"),
    "float": (broken(outputs={"float": "1e999"}), "no float"),
    "condition": (broken(conditions=[["==", ["open", 0], 1]]), "not readable"),
    "power": (broken(conditions=[["==", ["**", 9, 999999999], 1]]), "not readable"),
    "powers": (broken(conditions=[["==", ["**", ["**", 9, 8], 8], 1]]), "not readable"),
    "size": (broken(conditions=[["==", ["size", 0, 2], 1]]), "not readable"),
    "more": (broken() | {"hooks": []}, "a calibrated program has"),
}


@pytest.mark.parametrize(("plain", "text"), BAD.values(), ids=BAD)
def test_what_is_no_program_is_refused(plain: Any, text: str) -> None:
    """The error names what is wrong."""
    with pytest.raises(FileFormatError, match=text):
        part_from_plain(plain, lambda name: torch.ones(1))


def test_a_leaf_of_another_kind_is_not_written() -> None:
    """Rather than a file that nobody can read, an error."""
    with pytest.raises(ArgumentTypeError, match="holds a object"):
        to_plain(Branch(tuple, (0,), (object(),)))


def test_conditions_come_back() -> None:
    """Every form in which a model's sizes are tested."""
    texts = [
        [">=", ["size", 0, 0], 2],
        ["==", ["and", ["<", ["size", 0, 1], 9], ["!=", ["max", 1, 2, 3], 4]], True],
        ["==", ["%", ["**", ["size", 0, 0], 2], 4.5], ["-", 0, 1]],
    ]
    for plain in texts:
        assert condition_to_plain(condition_from_plain(plain, [2])) == plain
