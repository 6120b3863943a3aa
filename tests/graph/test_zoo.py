"""Every kind of model, captured: the product computes the model's own bits."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from halfstep.graph.capture import capture
from halfstep.graph.product import product
from tests.graph.zoo import Case
from tests.graph.zoo_cases import PARTS, WHOLE, made

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@pytest.fixture(autouse=True)
def _steps_of_attention() -> Iterator[None]:
    """Torch's fused attention rounds differently, and is no part of a program."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def flat(output: Any) -> list[Any]:
    """The leaves of an output, dataclasses opened."""
    leaves = _pytree.tree_leaves(output)
    opened = [list(vars(leaf).values()) if hasattr(leaf, "score") else [leaf] for leaf in leaves]
    return [leaf for group in opened for leaf in group]


def assert_equal(one: Any, other: Any) -> None:
    """Same structure, same bits."""
    assert type(one) is type(other)
    first, second = flat(one), flat(other)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


def assert_same_on_all(model: nn.Module, twin: nn.Module, case: Case) -> None:
    """The twin returns what the model returns, for every call of the case."""
    for args, kwargs in case.arguments():
        with torch.no_grad():
            # Clones, since a model may change its input in place.
            assert_equal(twin(*cloned(args), **kwargs), model(*cloned(args), **kwargs))


def cloned(args: Any) -> Any:
    """The same arguments in memory of their own."""
    return _pytree.tree_map_only(Tensor, torch.clone, args)


@pytest.mark.parametrize("name", WHOLE)
def test_captured_as_a_whole(name: str) -> None:
    """One program, the model's bits on other batches, sizes and lengths, alive after pickling."""
    case = WHOLE[name]
    model = made(case)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    args, kwargs = case.arguments()[0]
    captured = capture(model, args, kwargs)
    assert list(captured.programs) == [""], str(captured)
    twin = product(model, captured)
    assert_same_on_all(model, twin, case)
    assert type(twin) is type(model)
    assert {name for name, _ in twin.named_modules()} == {name for name, _ in model.named_modules()}
    assert "forward" not in vars(model)
    assert list(twin.state_dict()) == list(before)
    for state in (model.state_dict(), twin.state_dict()):
        assert all(torch.equal(state[key], value) for key, value in before.items())
    assert_same_on_all(model, copy.deepcopy(twin), case)


@pytest.mark.parametrize("name", PARTS)
def test_captured_in_parts(name: str) -> None:
    """A model that decides on values keeps its Python, and its parts become programs."""
    case, expected = PARTS[name]
    model = made(case)
    args, kwargs = case.arguments()[0]
    captured = capture(model, args, kwargs)
    assert set(captured.programs) == expected, str(captured)
    assert "values of a tensor" in captured.regions[0].reason
    twin = product(model, captured)
    assert_same_on_all(model, twin, case)
    assert_same_on_all(model, pickle.loads(pickle.dumps(twin)), case)
