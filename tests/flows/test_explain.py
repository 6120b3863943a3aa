"""hs.explain: which models it compares, on which data, and what it says where something is off."""

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.report.explanation import Explanation
from tests.flows.small import X, mlp
from tests.graph.zoo import rand


def explained(model: nn.Module, quantized: Any, batches: Any, **options: Any) -> Explanation:
    """An explanation without times."""
    return hs.explain(model, quantized, batches, timed=False, **options)


def quantized(model: nn.Module, batches: Any = X, recipe: Any = None) -> hs.Result:
    """A result that was not compared with the reference."""
    return hs.ptq.quantize(model, batches, recipe, check="none")


# --- Models that are equal, and models that do not match ------------------------------------------


@pytest.mark.parametrize("twin", [lambda model: model, copy.deepcopy], ids=["itself", "a copy"])
def test_a_model_beside_itself_differs_in_nothing(twin: Callable[[nn.Module], nn.Module]) -> None:
    """Exact zeros in every value, and one sentence that says so."""
    model = mlp()
    found = explained(model, twin(model), X)
    assert found.is_equal
    assert found.output.noise == 0
    assert all(one.accumulated.noise == 0 for one in found.layers if one.accumulated)
    assert "No difference: float and quantized model agree in every value" in str(found)
    assert found.advice == ()
    assert found.suggested_recipe is None


def changed(change: Callable[[nn.Sequential], Any]) -> nn.Sequential:
    """Another model of nearly the same kind."""
    model = mlp()
    with torch.no_grad():
        change(model)
    return model


OTHERS: dict[str, tuple[Callable[[nn.Sequential], Any], str]] = {
    "weights": (lambda model: model[2].weight.add_(1), "2.weight has other values"),
    "shape": (lambda model: model.__setitem__(4, nn.Linear(16, 5)), "4.weight is (5, 16)"),
    "missing": (lambda model: model.__setitem__(2, nn.Identity()), "has 2.weight"),
    "bias": (lambda model: model[0].register_parameter("bias", None), "has 0.bias"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_float_model_than_the_results_is_refused(name: str) -> None:
    """The first tensor that differs is named, and what to do."""
    change, said = OTHERS[name]
    with pytest.raises(hs.ArgumentError, match="the float models do not match") as raised:
        explained(changed(change), quantized(mlp()), X)
    assert said in str(raised.value)


def test_another_step_than_the_results_is_named() -> None:
    """The tensors are the same ones, what is computed with them is not."""
    other = changed(lambda model: model.__setitem__(1, nn.Tanh()))
    with pytest.raises(hs.ArgumentError, match=r"aten\.tanh.*aten\.relu"):
        explained(other, quantized(mlp()), X)


def test_another_step_than_the_files_is_named(tmp_path: Path) -> None:
    """A file has no float model, so its program is compared."""
    hs.save(quantized(mlp()), tmp_path / "a.halfstep")
    other = changed(lambda model: model.__setitem__(1, nn.Tanh()))
    with pytest.raises(hs.ArgumentError, match=r"aten\.tanh.*aten\.relu"):
        explained(other, hs.load(tmp_path / "a.halfstep"), X)


def test_another_architecture_is_named(tmp_path: Path) -> None:
    """Also where one model has more steps."""
    hs.save(quantized(mlp()), tmp_path / "a.halfstep")
    other = nn.Sequential(*mlp(), nn.ReLU()).eval()
    with pytest.raises(hs.ArgumentError, match="the models do not match"):
        explained(other, hs.load(tmp_path / "a.halfstep"), X)
    with pytest.raises(hs.ArgumentError, match=r"match|one is no form of the other"):
        explained(mlp(), other, X)


def test_another_float_model_of_the_same_program_is_compared() -> None:
    """As after training on: its values differ, and each layer says by how much."""
    found = explained(mlp(), changed(lambda model: model[2].weight.mul_(1.01)), X)
    errors = {one.layer: one.accumulated.sqnr for one in found.layers if one.accumulated}
    assert errors["0"] == float("inf")
    assert 30 < errors["2"] < 50


def test_what_is_no_model_is_refused() -> None:
    """Such as the path of a file."""
    with pytest.raises(hs.ArgumentTypeError, match=r"quantized is a str: give what hs\.ptq"):
        explained(mlp(), "a.halfstep", X)


# --- Data ----------------------------------------------------------------------------------------


def test_a_metric_is_measured_of_both_models() -> None:
    """The labels come last in each batch; scores are means over samples."""
    model = mlp()
    labels = model(X).argmax(1)
    batches = [(X[:48], labels[:48]), (X[48:], labels[48:])]
    found = explained(
        model,
        quantized(model),
        batches,
        metric=lambda y, classes: (y.argmax(1) == classes).float().mean(),
    )
    assert found.task is not None
    assert found.task[0] == 1.0
    assert 0.8 < found.task[1] <= 1.0
    assert "task metric" in str(found)
    assert (found.batches, found.samples) == (2, 64)


@pytest.mark.parametrize(
    ("batches", "metric", "said"),
    [
        (X, lambda y, labels: 1.0, "a batch is a Tensor: give batches of"),
        ([(X, X)], lambda y, labels: "good", "returned 'good': it has to return a number"),
        ([(X, X)], lambda y, labels: y, "it has to return a number"),
    ],
)
def test_a_metric_that_is_none_is_refused(batches: Any, metric: Any, said: str) -> None:
    """What was given, and what is needed."""
    options = {"forward": lambda model, batch: model(batch)} if batches is X else {}
    with pytest.raises(hs.ArgumentError, match=said):
        explained(mlp(), quantized(mlp()), batches, metric=metric, **options)


def test_batches_of_every_kind_are_run() -> None:
    """A dict, tuples, a function that runs the model, and as many batches as are asked for."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(6, 8)

        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"sum": self.a(x) + self.b(y), "x": self.a(x)}

    torch.manual_seed(0)
    model, y = Two(), rand(64, 6)
    result = quantized(model, (X, y))
    whole = explained(model, result, {"x": X, "y": y})
    for batches in ((X, y), lambda model: model(X, y=y)):
        assert explained(model, result, batches).output == whole.output
    several = explained(model, result, [(X[:9], y[:9])] * 3, max_batches=2)
    assert (several.batches, several.samples) == (2, 18)
    assert whole.output.elements == 2 * 64 * 8


def test_a_target_is_searched_for() -> None:
    """min_sqnr, and a score with the most it may drop; what is found holds when quantized anew."""
    model, result = mlp(), quantized(mlp())
    found = explained(model, result, X, min_sqnr=result.summary.sqnr + 5)
    assert found.kept is not None
    assert found.kept.is_met
    assert found.kept.layers
    rules = [hs.Rule(name, keep_float=True) for name in found.kept.layers]
    again = quantized(model, recipe=hs.recipes.static_int8().with_rules(*rules))
    assert again.summary.sqnr == pytest.approx(found.kept.reached, abs=0.5)
    expected = model(X)

    def score(one: nn.Module) -> float:
        return -float((one(X) - expected).square().mean())

    scored = explained(model, result, X, evaluate=score, max_drop=1e9)
    assert scored.kept is not None
    assert scored.kept.layers == ()


def test_a_target_without_a_recipe_is_refused(tmp_path: Path) -> None:
    """A file holds no float model, and the recipe that is taken by default is not its own."""
    hs.save(quantized(mlp(), recipe=hs.recipes.dynamic_int8()), tmp_path / "a.halfstep")
    loaded = hs.load(tmp_path / "a.halfstep")
    with pytest.raises(hs.ArgumentError, match="give recipe="):
        explained(mlp(), loaded, X, min_sqnr=30)
    found = explained(mlp(), loaded, X)
    assert found.notes[0].startswith("no advice is measured")


def test_the_progress_bar_is_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed, neither by itself nor on a terminal that did not ask."""
    explained(mlp(), quantized(mlp()), X, progress=False)
    assert capsys.readouterr() == ("", "")


def test_no_value_is_kept() -> None:
    """What a batch brings is gone when the next one runs, and all of it with the explanation."""
    alive: list[weakref.ref[Tensor]] = []
    counts: list[int] = []

    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
    result = quantized(model)

    def forward(one: nn.Module, batch: Tensor) -> Tensor:
        gc.collect()
        counts.append(sum(tensor() is not None for tensor in alive))
        given = batch.clone()
        alive.append(weakref.ref(given))
        return one(given)

    found = explained(model, result, [X[:8]] * 6, forward=forward)
    del result
    gc.collect()
    assert found.batches == 6
    assert max(counts) <= 3
    assert not any(tensor() is not None for tensor in alive)


# --- Data that a model was not made for ----------------------------------------------------------
