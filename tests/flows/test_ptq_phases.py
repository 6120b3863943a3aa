"""The flow: how data comes in, in one call and in two phases."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import halfstep as hs
from halfstep.flows import ptq
from halfstep.spec.recipes import dynamic_int8, static_int8
from tests.flows.small import X, mlp, scales


def test_the_recipe_by_default() -> None:
    """static_int8 with batches, dynamic_int8 without; the summary says it and why."""
    with_data, without = ptq.quantize(mlp(), X), ptq.quantize(mlp())
    assert with_data.recipe == static_int8()
    assert without.recipe == dynamic_int8()
    assert "recipe: static_int8 (chosen since batches were given)" in str(with_data)
    assert "recipe: dynamic_int8 (chosen since no batches were given)" in str(without)
    assert "chosen" not in str(ptq.quantize(mlp(), X, dynamic_int8()))


def halves() -> Iterator[Tensor]:
    """A generator, which can be read once."""
    yield from X.split(16)


@pytest.mark.parametrize(
    "make",
    [
        lambda: X,
        lambda: list(X.split(16)),
        halves,
        lambda: DataLoader(TensorDataset(X), batch_size=16),
        lambda: {"input": X},
        lambda: lambda model: [model(half) for half in X.split(16)],
    ],
    ids=["tensor", "list", "generator", "loader", "dict", "function"],
)
def test_kinds_of_data(make: Any) -> None:
    """All bring the same ranges and are compared with the float model."""
    result = ptq.quantize(mlp(), make())
    assert scales(result) == scales(ptq.quantize(mlp(), X))
    assert result.summary.sqnr is not None
    assert result.summary.sqnr > 30
    assert result.summary.batches == result.summary.compared >= 1


def test_a_loader_with_labels() -> None:
    """The error shows forward=; with it, or with max_batches, the data is taken."""
    loader = DataLoader(TensorDataset(X, torch.zeros(64)), batch_size=16)
    with pytest.raises(hs.ArgumentError, match=r"forward=lambda model, batch: model\(batch\[0\]\)"):
        ptq.quantize(mlp(), loader)
    result = ptq.quantize(
        mlp(), loader, forward=lambda model, batch: model(batch[0]), max_batches=3
    )
    assert result.summary.batches == 3
    assert scales(result) == scales(ptq.quantize(mlp(), X[:48]))


def test_no_data_at_all() -> None:
    """Empty batches are an error, and so are other things that are none."""
    for nothing in ([], iter(())):
        with pytest.raises(hs.ArgumentError, match="batches holds no batch"):
            ptq.quantize(mlp(), nothing)
    with pytest.raises(hs.ArgumentTypeError, match="batches is a int"):
        ptq.quantize(mlp(), 3)
    with pytest.raises(hs.ArgumentError, match="leave out max_batches="):
        ptq.quantize(mlp(), lambda model: model(X), max_batches=2)


def test_the_data_is_run_once_by_the_model_and_once_by_the_result() -> None:
    """A loader is read once, however many passes there are."""
    read: list[int] = []

    def batches() -> Iterator[Tensor]:
        for place, half in enumerate(X.split(16)):
            read.append(place)
            yield half

    ptq.quantize(mlp(), batches())
    assert read == [0, 1, 2, 3]


def test_two_phases_equal_one_call() -> None:
    """prepare, one's own loop, convert: the same integers as quantize."""
    prepared = ptq.prepare(mlp(), X[:2])
    assert type(prepared) is nn.Sequential
    for half in X.split(16):
        assert torch.allclose(prepared(half), mlp()(half), atol=1e-6)
    result = ptq.convert(prepared)
    assert torch.equal(result.model(X), ptq.quantize(mlp(), X).model(X))
    assert result.summary.sqnr is None
    assert result.summary.batches == 4


def test_observers_are_reset() -> None:
    """After hs.reset_observers only new data counts; the example is never observed."""
    prepared = ptq.prepare(mlp(), 1000 * X)
    prepared(100 * X)
    assert hs.reset_observers(prepared) == len(scales(ptq.quantize(mlp(), X)))
    prepared(X)
    result = ptq.convert(prepared)
    assert scales(result) == scales(ptq.quantize(mlp(), X))
    assert result.summary.batches == 1


def test_a_prepared_model_is_copied_and_pickled() -> None:
    """With what it has seen."""
    prepared = ptq.prepare(mlp(), X[:2])
    prepared(X)
    expected = scales(ptq.convert(prepared))
    for other in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert scales(ptq.convert(other)) == expected
        other(100 * X)
        assert scales(ptq.convert(other)) != expected
    assert scales(ptq.convert(prepared)) == expected


def test_no_data_has_reached_a_layer() -> None:
    """convert names the layer; a model that is not prepared is refused."""
    prepared = ptq.prepare(mlp(), X[:2])
    with pytest.raises(hs.ArgumentError, match="no data has reached the model, its input input"):
        ptq.convert(prepared)
    prepared(X)
    ptq.convert(prepared)
    for other in (mlp(), 3):
        with pytest.raises(hs.ArgumentError, match="is not prepared: make it with"):
            ptq.convert(other)  # type: ignore[arg-type]  # the point
