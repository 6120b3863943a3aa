"""What counts as a batch, and how it becomes arguments."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.flows.batches import inference, run, run_all
from halfstep.spec import Rule, int8
from halfstep.spec.recipes import dynamic_int8


class Takes(nn.Module):
    """Remembers how it was called."""

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """x times a number."""
        self.called = (x, scale)
        return x * scale


class TakesOne(nn.Module):
    """A model of one argument."""

    def forward(self, x: Tensor) -> Tensor:
        """x."""
        return x


X = torch.ones(2)


@pytest.mark.parametrize(
    ("batches", "scales"),
    [
        (X, [1.0]),
        ((X, 2.0), [2.0]),
        ({"x": X, "scale": 3.0}, [3.0]),
        ([X, (X, 2.0), [X, 4.0], {"x": X}], [1.0, 2.0, 4.0, 1.0]),
        ((batch for batch in [X, X]), [1.0, 1.0]),
    ],
    ids=["tensor", "tuple", "dict", "list of each", "generator"],
)
def test_every_form_of_batch_reaches_forward(batches: Any, scales: list[float]) -> None:
    """A tensor, a tuple, a dict, and series of them call the model as one would by hand."""
    outputs = list(run_all(Takes(), batches))
    assert [output[0].item() for output in outputs] == scales


def test_a_function_runs_the_model_in_its_own_way() -> None:
    """``batches`` may be a function of the model."""
    (output,) = run_all(Takes(), lambda model: model(X, 5.0))
    assert output[0] == 5.0


def test_forward_says_how_a_batch_is_run() -> None:
    """``forward=`` replaces the convention."""
    (output,) = run_all(TakesOne(), [(X, 7)], forward=lambda model, batch: model(batch[0]))
    assert torch.equal(output, X)


def test_a_label_too_many_is_explained() -> None:
    """A loader of (x, label) gets an error that shows the way."""
    with pytest.raises(ArgumentError) as raised:
        list(run_all(TakesOne(), [(X, 7)]))
    assert "pass forward=lambda model, batch: model(batch[0])" in str(raised.value)
    assert "the batch has 2 values" in str(raised.value)


def test_arguments_that_fit_in_no_way() -> None:
    """Too many values say so without a wrong guess."""
    with pytest.raises(ArgumentError, match="to say how it is run"):
        list(run_all(TakesOne(), [(X, 7, 8)]))


@pytest.mark.parametrize("empty", [[], ()], ids=["list", "tuple"])
def test_no_batch_at_all(empty: Any) -> None:
    """Nothing to run is an error, not a silent success."""
    with pytest.raises((ArgumentError, TypeError)):
        list(run_all(TakesOne(), empty))


def test_what_is_no_batch() -> None:
    """A number is refused with what is allowed."""
    with pytest.raises(ArgumentTypeError, match="batches is a int: give a tensor"):
        list(run_all(TakesOne(), 3))


def test_max_batches() -> None:
    """At most so many are run, and 0 is refused."""
    assert len(list(run_all(TakesOne(), [X] * 5, max_batches=2))) == 2
    with pytest.raises(ArgumentError, match="max_batches=0: allowed is 1 or more"):
        list(run_all(TakesOne(), [X], max_batches=0))


def test_mode_is_restored_module_by_module() -> None:
    """A frozen part of a training model stays frozen, a training part goes on training."""
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))
    model[1].eval()

    def run_and_fail() -> None:
        with inference(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run_and_fail()
    assert [model.training, model[0].training, model[1].training] == [True, True, False]


def test_nested_values_are_passed_on() -> None:
    """Structures inside a batch arrive as they are."""

    class Nested(nn.Module):
        def forward(self, x: dict[str, Any]) -> Tensor:
            return x["a"][0]

    assert torch.equal(run(Nested(), ({"a": [X]},)), X)


def test_progress_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A bar goes to stderr, never to stdout; none without a terminal."""
    list(run_all(TakesOne(), [X], progress=True, title="looking"))
    shown = capsys.readouterr()
    assert "looking" in shown.err
    assert shown.out == ""
    list(run_all(TakesOne(), [X]))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("given", [dynamic_int8(), Rule("fc", weight=int8)])
def test_a_recipe_is_no_data(given: object) -> None:
    """A recipe in the place of the data is seen, alone and in a list, before anything runs."""
    for batches in (given, [given]):
        with pytest.raises(ArgumentTypeError, match="data come second and the recipe third"):
            list(run_all(TakesOne(), batches))
