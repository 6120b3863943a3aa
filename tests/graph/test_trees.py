"""Arguments and results as trees: apart and together again, compared, told."""

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import halfstep as hs
from halfstep.graph.trees import Branch, Value, join, leaves, mapped, match, split, text
from tests.graph.zoo import Answer, Pair

X = torch.ones(2)
TREES: list[Any] = [
    5,
    (1, [2, None], {"a": "b", 3: ()}),
    Pair(1, 2),
    Answer(3, "note"),
    OrderedDict(a=1, b=(2,)),
    [Answer([1], "x"), {"k": Pair((), None)}],
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_join_is_the_inverse_of_split(tree: Any) -> None:
    """Every container comes back as what it was."""
    again = join(split(tree))
    assert type(again) is type(tree)
    assert again == tree


def test_leaves_and_mapped_go_from_left_to_right() -> None:
    """Leaves of nested containers in order; a mapped tree keeps its shape."""
    tree = split({"a": (1, 2), "b": [3]})
    assert list(leaves(tree)) == [1, 2, 3]
    assert join(mapped(tree, lambda leaf: leaf * 2)) == {"a": (2, 4), "b": [6]}


def test_match_finds_tensors_by_key() -> None:
    """The order of a dict does not matter."""
    pattern = split({"a": Value("x"), "b": 1})
    assert dict(match(pattern, split({"b": 1, "a": X}))) == {Value("x"): X}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"a": 1, "b": 1}, "forward.a is 1: it was a tensor when captured"),
        ({"a": X, "b": 2}, "forward.b is 2: it was 1 when the model was captured"),
        ({"a": X, "b": True}, "forward.b is True: it was 1"),
        ({"a": X, "b": X}, r"forward.b is a tensor of shape \(2,\): it was 1"),
        ({"a": X}, "it was {'a': x, 'b': 1} when captured"),
        (3, "forward is 3: it was"),
    ],
)
def test_match_names_the_place(given: Any, error: str) -> None:
    """What differs from the example is told with its path."""
    with pytest.raises(hs.HalfstepError, match=error):
        dict(match(split({"a": Value("x"), "b": 1}), split(given)))


def test_packed_sequences_are_refused() -> None:
    """A named tuple by its looks, but its lengths are data."""
    with pytest.raises(hs.ArgumentTypeError, match="pad to one length"):
        split((pack_sequence([X, X]),))


def test_text_reads_as_python() -> None:
    """Containers as a reader would write them."""
    tree = split({"p": Pair(Value("x"), [1]), "q": (Value("y"), "s")})
    assert text(tree) == "{'p': Pair(first=x, second=[1]), 'q': (y, 's')}"
    assert str(Branch(tuple, (0,), (None,))) == "(None)"
