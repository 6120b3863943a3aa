"""hs.explain on every kind of model, by every kind of recipe, on every engine."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.report.explanation import Explanation
from tests.flows.models import Recurrent
from tests.flows.small import X, mlp
from tests.graph.zoo import tokens
from tests.graph.zoo_cases import PARTS, WHOLE, made

RECIPES = {
    "static": hs.recipes.static_int8(),
    "dynamic": hs.recipes.dynamic_int8(),
    "weights": hs.recipes.weight_only(hs.int8),
}
ZOO = {**WHOLE, **{name: case for name, (case, _) in PARTS.items()}}


def explained(model: nn.Module, quantized: Any, batches: Any, **options: Any) -> Explanation:
    """An explanation without times."""
    return hs.explain(model, quantized, batches, timed=False, **options)


def quantized(model: nn.Module, batches: Any = X, recipe: Any = None) -> hs.Result:
    """A result that was not compared with the reference."""
    return hs.ptq.quantize(model, batches, recipe, check="none")


@pytest.mark.parametrize("engine", ["reference", "onnxruntime", "openvino"])
def test_every_engine_is_explained(engine: str) -> None:
    """The output is the engine's own; values between layers are measured all the same."""
    if engine != "reference":
        pytest.importorskip(engine)
    model, result = mlp(), quantized(mlp())
    running = result.model if engine == "reference" else hs.deploy(result, engine, example=X[:4])
    if engine == "reference":
        running = hs.ptq.quantize(model, X, engine="reference", check="none").model
    found = explained(model, running, X, recipe=result.recipe)
    expected = explained(model, result, X)
    assert found.engine == engine
    assert found.output.sqnr == pytest.approx(expected.output.sqnr, abs=1.5)
    local = [one.local.sqnr for one in found.layers if one.local]
    assert local == pytest.approx([one.local.sqnr for one in expected.layers if one.local], abs=1)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("data", [True, False], ids=["traced", "by layer"])
def test_a_recurrent_model_is_explained(recipe: str, data: bool) -> None:  # noqa: FBT001
    """An LSTM behind an embedding, several outputs, with and without calibration data."""
    if recipe == "static" and not data:
        pytest.skip("a static recipe needs data")
    torch.manual_seed(0)
    model, batch = Recurrent().eval(), tokens(3, 7)
    found = explained(model, quantized(model, batch if data else None, RECIPES[recipe]), batch)
    ops = {one.op: one for one in found.layers}
    assert ops["lstm"].local is not None
    assert found.output.elements == 3 * 7 * 12 + 2 * 4 * 3 * 6
    assert found.output.sqnr > 20


def test_children_that_are_captured_separately() -> None:
    """Control flow on values stays Python; the layers of each child are there by their paths."""
    case, paths = PARTS["branching"]
    model = made(case)
    ((x,), _), *_ = case.arguments()
    found = explained(model, quantized(model, x), x)
    assert {one.layer.split(".")[0] for one in found.layers if one.local} == paths
    assert found.output.sqnr > 20


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_file_gets_the_advice_of_its_result(tmp_path: Path, recipe: str) -> None:
    """With the recipe that it was made by; times are measured where they are asked for."""
    model = mlp()
    rough = hs.Rule("2", weight=hs.QSpec(hs.int2, symmetric=True))
    if recipe == "static":
        rough = hs.Rule("2", weight=rough.weight, input=hs.uint8, output=hs.uint8)
    made_by = RECIPES[recipe].with_rules(rough)
    result = quantized(model, X if recipe == "static" else None, made_by)
    hs.save(result, tmp_path / "a.halfstep")
    loaded = hs.load(tmp_path / "a.halfstep", model=model)
    expected, found = explained(model, result, X), explained(model, loaded, X, recipe=made_by)
    assert found.output == expected.output
    assert [one.layer for one in expected.advice][:1] == ["2"]
    assert [(one.layer, one.cause) for one in found.advice] == [
        (one.layer, one.cause) for one in expected.advice
    ]
    assert found.suggested_recipe == expected.suggested_recipe


def test_times_are_measured() -> None:
    """Of the whole model and of each layer, float and quantized."""
    found = hs.explain(mlp(), quantized(mlp()), X)
    assert found.float_ms is not None
    assert found.ms is not None
    assert all(one.ms is not None and one.float_ms is not None for one in found.layers if one.local)


def test_the_model_that_was_given_stays_as_it_is() -> None:
    """Its mode, its weights, and its forward."""
    model = mlp().train()
    before = copy.deepcopy(model.state_dict())
    explained(model, quantized(model), X)
    assert model.training
    assert "forward" not in vars(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.filterwarnings("ignore::halfstep.errors.HalfstepWarning")
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ZOO)
def test_every_model_of_the_zoo_is_explained(name: str, recipe: str) -> None:
    """As a table, as data, with errors that are numbers."""
    case = ZOO[name]
    model = made(case)
    calls = list(case.arguments())

    def run(one: nn.Module) -> Any:
        with torch.no_grad():
            return [one(*copy.deepcopy(args), **kwargs) for args, kwargs in calls]

    found = explained(model, quantized(model, run, RECIPES[recipe]), run)
    assert found.layers
    assert str(found)
    assert found.to_json()
    for layer in found.layers:
        if layer.split is not None and layer.local is not None:
            assert layer.split.total == pytest.approx(layer.local.noise, rel=1e-2, abs=1e-9)


class Biases(nn.Module):
    """A layer that has no bias, and one that is called twice, so that two calls share its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.bare, self.twice = nn.Linear(6, 6, bias=False), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 6) to (N, 6)."""
        y: torch.Tensor = self.twice(torch.relu(self.twice(self.bare(x))))
        return y


@pytest.mark.parametrize("is_file", [False, True], ids=["result", "file"])
def test_biases_that_only_the_corrected_model_has(tmp_path: Path, is_file: bool) -> None:  # noqa: FBT001
    """They are no other program; what they correct is in the split, which is the local error."""
    torch.manual_seed(0)
    model = Biases().eval()
    recipe = RECIPES["static"].with_remedies(hs.remedies.CorrectBias())
    made: Any = quantized(model, X, recipe)
    assert [row.why for row in made.coverage if row.op == "linear"] == ["bias corrected"] * 3
    if is_file:
        hs.save(made, tmp_path / "a.halfstep")
        made = hs.load(tmp_path / "a.halfstep")
    found = explained(model, made, X, recipe=recipe)
    assert [one.layer for one in found.layers if one.local] == ["bare", "twice", "twice"]
    for one in found.layers:
        if one.local is not None and one.split is not None:
            assert one.split.total == pytest.approx(one.local.noise, rel=1e-3)
