"""The flow: recalibration, in place, and what it warns of and refuses."""

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.flows import ptq
from halfstep.flows.result import Result
from halfstep.spec.recipes import static_int8
from tests.flows.small import X, mlp, scales
from tests.graph import zoo
from tests.graph.zoo import rand, tokens


def test_recalibration() -> None:
    """Other data brings other ranges for the same model and recipe, also from a pickle."""
    result = ptq.quantize(mlp(), X)
    again = result.recalibrate(3 * X, check="none")
    assert scales(again) == scales(ptq.quantize(mlp(), 3 * X)) != scales(result)
    assert again.recipe == result.recipe
    assert scales(again.recalibrate(X)) == scales(result)
    assert scales(pickle.loads(pickle.dumps(result)).recalibrate(3 * X)) == scales(again)
    alone = Result(result.model, result.coverage, result.summary, result.recipe)
    with pytest.raises(hs.ArgumentError, match="has no float model"):
        alone.recalibrate(X)


def test_the_float_model_of_a_result_is_its_own() -> None:
    """Changing the model that was given, or the result, changes no later recalibration."""
    model = mlp()
    result = ptq.quantize(model, X)
    expected = result.model(X)
    with torch.no_grad():
        model[0].weight.zero_()
        again = result.recalibrate(X)
        result.model[0].bias.zero_()
    assert torch.equal(again.model(X), expected)
    assert torch.equal(result.recalibrate(X).model(X), expected)


@pytest.mark.parametrize("batches", [X, None], ids=["data", "no data"])
def test_in_place(batches: Any) -> None:
    """The very model becomes the quantized one, and equals a copy that was made."""
    model = mlp()
    result = ptq.quantize(model, batches, inplace=True)
    assert result.model is model
    assert isinstance(model[0].weight, hs.QTensor)
    assert torch.equal(model(X), ptq.quantize(mlp(), batches).model(X))
    with pytest.raises(hs.ArgumentError, match="inplace=True"):
        result.recalibrate(X)


def test_in_place_with_batch_norm() -> None:
    """Folded weights are put into the model itself."""
    torch.manual_seed(0)
    model = zoo.Block().train()
    images = rand(4, 3, 8, 8)
    model(images)
    expected = model.eval()(images)
    copied = copy.deepcopy(model)
    ptq.quantize(model, images, inplace=True)
    assert (model(images) - expected).norm() < 0.03 * expected.norm()
    assert torch.equal(model(images), ptq.quantize(copied, images).model(images))


def test_the_mode_of_the_model_is_its_own() -> None:
    """A model in training is quantized as it infers, and stays in training."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.9)).train()
    result = ptq.quantize(model, X)
    assert model.training
    assert model[1].training
    assert result.summary.sqnr is not None
    assert result.summary.sqnr > 25


def test_values_that_are_not_finite() -> None:
    """In the data or in a weight: the error names the layer."""
    bad = X.clone()
    bad[3, 2] = torch.nan
    with pytest.raises(hs.NonFiniteError, match="of layer 'the model, its input input'"):
        ptq.quantize(mlp(), bad)
    model = mlp()
    with torch.no_grad():
        model[2].bias[0] = torch.inf
    with pytest.raises(hs.NonFiniteError, match=r"MinMaxObserver of layer '[23]'"):
        ptq.quantize(model, X)
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan
    for batches in (X, None):
        with pytest.raises(hs.NonFiniteError, match=r"the weight 2.weight holds 1 values that are"):
            ptq.quantize(model, batches)


def test_a_rule_that_matches_nothing() -> None:
    """The error says which, and the nearest names; defaults of a preset may match nothing."""
    recipe = static_int8().with_rules(hs.Rule("fc1", keep_float=True))
    with pytest.raises(hs.ArgumentError, match=r"fc1.* matches nothing"):
        ptq.quantize(mlp(), X, recipe)
    ptq.quantize(mlp(), X, static_int8().with_rules(hs.Rule("2", keep_float=True)))


def test_own_rules_and_observers() -> None:
    """A layer kept in float stays so; an observer class and an observer object find the ranges."""
    recipe = static_int8().with_rules(hs.Rule("2", keep_float=True))
    result = ptq.quantize(mlp(), X, recipe)
    assert {row.runs for row in result.coverage.of("2")} == {"float"}
    assert not isinstance(result.model[2].weight, hs.QTensor)
    rows = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
    fixed = hs.FixedObserver(hs.QSpec(hs.uint8), -1.0, 1.55)
    for given in (
        {"input": fixed},
        {"input": hs.uint8, "observer": lambda spec: hs.FixedObserver(spec, -1.0, 1.55)},
    ):
        found = scales(ptq.quantize(mlp(), X, {"*": {"weight": rows, **given}}))
        assert list(found.values()) == pytest.approx([0.01] * len(found))
    wrong = {"weight": rows, "input": hs.uint8, "observer": repr}
    with pytest.raises(hs.ArgumentTypeError, match="makes a str: give an observer class"):
        ptq.quantize(mlp(), X, {"*": wrong})


def test_a_collapse_is_a_warning_that_names_the_worst_value() -> None:
    """One input that is a thousand times larger than the others, and does not matter."""
    model = mlp()
    with torch.no_grad():
        model[0].weight[:, 0] = 0
    x = X.clone()
    x[:, 0] *= 10_000
    with pytest.warns(
        hs.HalfstepWarning, match=r"is a collapse. The worst value is that of \d, at"
    ):
        result = ptq.quantize(model, x)
    assert result.summary.sqnr is not None
    assert result.summary.sqnr < 10


def test_no_collapse_no_warning() -> None:
    """Nothing is said of a model that is close to its float form."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ptq.quantize(mlp(), X)


@pytest.mark.parametrize("check", ["one", "all", "none"])
def test_equality_on_request(check: str) -> None:
    """On one sample, on all data, or not at all; the summary says on how many integers."""
    result = ptq.quantize(mlp(), list(X.split(16)), check=check)
    line = result.summary.equality.get("torch", "")
    numbers = {"one": (6 + 16 + 16), "all": 64 * (6 + 16 + 16), "none": 0}[check]
    assert line == (f"equal to the reference in all {numbers} integers" if numbers else "") or (
        line.startswith(f"equal to the reference in all {numbers} integers of")
    )
    with pytest.raises(hs.ArgumentError, match="check='some': allowed are 'one', 'all', 'none'"):
        ptq.quantize(mlp(), X, check="some")


def test_the_engine_is_chosen() -> None:
    """By name or as an object; another name is an error."""
    result = ptq.quantize(mlp(), X, engine="reference")
    assert torch.equal(result.model(X), ptq.quantize(mlp(), X, engine="torch").model(X))
    with pytest.raises(hs.ArgumentError, match="engine='fast'"):
        ptq.quantize(mlp(), X, engine="fast")


def test_what_is_no_float_model() -> None:
    """Another type, a quantized model and a prepared one are refused, with what to do."""
    with pytest.raises(hs.ArgumentTypeError, match="model is a Tensor"):
        ptq.quantize(X, X)  # type: ignore[arg-type]  # the point
    for ours in (ptq.quantize(mlp(), X).model, ptq.prepare(mlp(), X)):
        with pytest.raises(hs.ArgumentError, match="quantized or prepared already"):
            ptq.quantize(ours, X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_is_refused() -> None:
    """Its layers are no modules any more; the error says which part, and what to give."""
    whole = nn.Sequential(nn.ReLU(), torch.jit.trace(mlp(), X))
    for batches in (X, None):
        with pytest.raises(hs.ArgumentError, match="1 is a TorchScript program"):
            ptq.quantize(whole, batches)


def test_a_decoding_loop() -> None:
    """Data may be a function that runs the model in its own way; what returns no floats, too."""
    result = ptq.quantize(zoo.Greedy().eval(), lambda model: [model(tokens(1, 5))])
    assert result.summary.sqnr is None
    assert "no float outputs were compared" in str(result)
    assert any(row.runs == "dynamic int8" for row in result.coverage)
    assert "values of a tensor" in result.coverage[0].why


class Layers(nn.Module):
    """Layers of all families; in a float type other than float32 each must be given it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.turned = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 2)
        self.norm, self.fc = nn.BatchNorm2d(4), nn.Linear(4, 4)
        self.rows, self.bags = nn.Embedding(5, 4), nn.EmbeddingBag(5, 4)
        self.gru = nn.GRU(4, 4)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        """Each layer reads what another brings."""
        y = self.fc(self.turned(self.norm(self.conv(x))).mean((2, 3)))
        found, last = self.gru((y + self.rows(i[:, 0]) + self.bags(i))[None])
        return found[0] + last[0]


@pytest.mark.parametrize("has_data", [True, False])
@pytest.mark.parametrize("recipe", [hs.recipes.dynamic_int8(), hs.recipes.weight_only(hs.int8)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_layers_return_the_float_type_of_the_model(
    dtype: torch.dtype, recipe: hs.Recipe, *, has_data: bool
) -> None:
    """What a layer brings has the type that it had, however it is quantized."""
    model = Layers().to(dtype).eval()
    batch = (torch.randn(2, 3, 6, 6, dtype=dtype), torch.randint(5, (2, 3)))
    result = ptq.quantize(model, batch if has_data else None, recipe)
    found = result.model(*batch)
    assert found.dtype == dtype
    torch.testing.assert_close(found, model(*batch), rtol=0.1, atol=0.1)
