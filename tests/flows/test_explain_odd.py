"""hs.explain on odd data and odd outputs: what it says of them."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.report.explanation import Explanation
from tests.flows.small import X, mlp


def explained(model: nn.Module, quantized: Any, batches: Any, **options: Any) -> Explanation:
    """An explanation without times."""
    return hs.explain(model, quantized, batches, timed=False, **options)


def quantized(model: nn.Module, batches: Any = X, recipe: Any = None) -> hs.Result:
    """A result that was not compared with the reference."""
    return hs.ptq.quantize(model, batches, recipe, check="none")


def test_a_metric_on_batches_without_labels_is_refused() -> None:
    """Also where nobody says how the model is run."""
    with pytest.raises(hs.ArgumentError, match="a batch is a Tensor: give batches of"):
        explained(mlp(), quantized(mlp()), X, metric=lambda y, labels: 1.0)


def test_data_that_reach_further_than_the_calibration() -> None:
    """The ranges are what they should be, of other data: one piece of advice says that."""
    found = explained(mlp(), quantized(mlp(), X / 4), X)
    first, *others = found.advice
    assert first.cause == "activation clipping"
    assert "more values like that" in first.evidence
    assert "result.recalibrate(batches)" in first.action
    assert not any(one.keeps_float for one in others)
    again = quantized(mlp(), X / 4).recalibrate(X)
    assert again.summary.sqnr == pytest.approx(found.suggested_sqnr, abs=1)


def test_data_that_are_not_finite_bring_no_advice() -> None:
    """No layer in float mends them; where they come from is said."""
    batch = X.clone()
    batch[0, 0] = float("nan")
    found = explained(mlp(), quantized(mlp()), batch)
    assert found.advice == ()
    assert found.suggested_recipe is None
    assert "the float model itself returns values that are not finite" in str(found)
    json.loads(found.to_json(), parse_constant=pytest.fail)


class Classes(nn.Sequential):
    """A model that returns integers."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, features) to (N,)."""
        classes: Tensor = super().forward(x).argmax(1)
        return classes


def test_an_output_of_integers_is_not_said_to_be_exact() -> None:
    """The layers are compared, the output is not."""
    model = Classes(*mlp())
    text = str(explained(model, quantized(model), X))
    assert "The output is not compared; what the layers lose is below." in text
    assert "exact" not in text


def test_a_batch_of_no_samples_says_nothing_of_the_model() -> None:
    """Nothing was compared is another thing than no difference."""
    found = explained(mlp(), quantized(mlp()), X[:0])
    assert "Nothing was compared: the batches hold no values." in str(found)
    assert "No difference" not in str(found)


class Masked(nn.Linear):
    """A layer of whose outputs some are minus infinity, as in attention."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, features) to (N, features)."""
        return super().forward(x).masked_fill(torch.arange(self.out_features) > 2, float("-inf"))


def test_infinities_that_both_models_return_are_no_error() -> None:
    """Neither in the summary of the result, nor in what advice is measured by."""
    torch.manual_seed(0)
    model = Masked(6, 4).eval()
    result = quantized(model, X, hs.recipes.weight_only(hs.int4))
    found = explained(model, result, X)
    assert result.summary.sqnr == pytest.approx(found.output.sqnr)
    assert [one.cause for one in found.advice] == ["weights of 4 bits"]
    assert found.suggested_sqnr is not None
    assert found.suggested_sqnr > found.output.sqnr + 10


class Branching(nn.Module):
    """Its code depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 6) to (N, 6)."""
        y: Tensor = self.a(x) if bool(x.sum() > 0) else self.b(x)
        return y


def test_what_runs_as_python_is_said() -> None:
    """With its reason, as all that stays float; a function counts no samples."""
    model = Branching().eval()

    def run(one: nn.Module) -> Any:
        return [one(X.abs())]

    text = str(explained(model, quantized(model, run), run))
    assert "the model: its Python code depends on the values of a tensor" in text
    assert "b: it was not called when the model ran" in text
    assert "measured on 1 batch\n" in text
