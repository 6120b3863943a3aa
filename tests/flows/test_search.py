"""The layers that have to stay in float are found, and the model is what its recipe makes anew."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.flows import ptq
from halfstep.flows.data import Data
from halfstep.flows.search import Search, variants_of
from halfstep.flows.summary import Summary
from halfstep.flows.target import Target
from tests.flows.small import X, mlp
from tests.graph.zoo import rand

ROWS = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
ROUGH = hs.QSpec(hs.int2, symmetric=True)


class Net(nn.Module):
    """Convolutions around which values also go directly, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 10)."""
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.fc(x.mean((2, 3)))


IMAGES = rand(16, 3, 8, 8)


def destroyed(*layers: str) -> hs.Recipe:
    """The static recipe, by which some layers have weights of two bits with one scale."""
    rules = [hs.Rule(name, weight=ROUGH, input=hs.uint8, output=hs.uint8) for name in layers]
    return hs.recipes.static_int8().with_rules(*rules)


def kept(result: hs.Result) -> list[str]:
    """What the rules of a result keep in float."""
    return [rule.match for rule in result.recipe if rule.keep_float]


def sqnr(model: nn.Module, x: Tensor, recipe: Any) -> float:
    """What a recipe comes to, from the float model on."""
    found = ptq.quantize(model, x, recipe, check="none").summary.sqnr
    assert found is not None
    return found


@pytest.mark.parametrize(("model", "x", "layer"), [(Net(), IMAGES, "blocks.2"), (mlp(), X, "2")])
def test_a_planted_bad_layer_is_found_alone(model: nn.Module, x: Tensor, layer: str) -> None:
    """It alone is kept, and quantizing anew by the result's recipe makes the same model."""
    recipe = destroyed(layer)
    assert sqnr(model, x, recipe) < 28
    result = ptq.quantize(model, x, recipe, min_sqnr=32)
    assert kept(result) == [layer]
    assert result.summary.kept is not None
    assert result.summary.kept.layers == (layer,)
    assert result.summary.kept.reached == pytest.approx(result.summary.sqnr)
    again = ptq.quantize(model, x, result.recipe)
    assert torch.equal(again.model(x), result.model(x))
    plain = ptq.quantize(model, x, recipe, check="none")
    cost = result.summary.bytes_after - plain.summary.bytes_after
    assert result.summary.kept.bytes == cost > 0


def test_two_bad_layers_are_found_together() -> None:
    """Neither suffices alone; the first one listed is that which brings more."""
    recipe = destroyed("blocks.0", "blocks.3")
    result = ptq.quantize(Net(), IMAGES, recipe, min_sqnr=30)
    assert set(kept(result)) == {"blocks.0", "blocks.3"}
    before, (first, both) = result.summary.kept.before, result.summary.kept.values
    assert before < first < 30 <= both


def test_no_layer_of_the_list_can_be_left_out() -> None:
    """Quantized anew without any one of them, the target is missed; with all it is met."""
    model, target = Net(), 52.0
    result = ptq.quantize(model, IMAGES, min_sqnr=target)
    found = kept(result)
    assert len(found) >= 2
    assert sqnr(model, IMAGES, result.recipe) >= target
    for left in found:
        rules = [hs.Rule(name, keep_float=True) for name in found if name != left]
        assert sqnr(model, IMAGES, hs.recipes.static_int8().with_rules(*rules)) < target


def test_each_layer_alone_is_measured_as_if_it_were_quantized_anew() -> None:
    """The gains from suffixes are those of whole models, in every bit of the output."""
    model, result = Net(), ptq.quantize(Net(), IMAGES)
    data = Data([IMAGES])
    data.run_all(model)
    search = Search(variants_of(result, data), Target(min_sqnr=1))
    gains = search._gains()
    assert set(gains) == {"stem.0", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "fc", ""}
    for name, found in gains.items():
        rule = hs.Rule(name, keep_float=True)
        assert found == sqnr(model, IMAGES, hs.recipes.static_int8().with_rules(rule))


def test_a_score_of_the_user_s_own() -> None:
    """With evaluate= the score decides; it is asked of the float model and of quantized ones."""
    model = Net().eval()
    asked: list[type] = []
    with torch.no_grad():
        labels = model(IMAGES)

    def score(candidate: nn.Module) -> Tensor:
        asked.append(type(candidate))
        assert not candidate.training
        return -(candidate(IMAGES) - labels).abs().mean()

    recipe = destroyed("blocks.1")
    worst = float(score(ptq.quantize(model, IMAGES, recipe).model))
    drop = -worst / 2
    result = ptq.quantize(model, IMAGES, recipe, evaluate=score, max_drop=drop)
    assert kept(result) == ["blocks.1"]
    assert float(score(result.model)) == result.summary.kept.reached >= -drop
    assert set(asked) == {Net}


def test_a_score_without_data() -> None:
    """Layers are put in order by the score itself, and dynamic layers need no ranges."""
    model = mlp()
    rough = {"2": {"weight": ROUGH}, "*": {"weight": ROWS}}
    expected = model(X).detach()

    def score(candidate: nn.Module) -> float:
        return -float((candidate(X) - expected).norm() / expected.norm())

    result = ptq.quantize(model, None, rough, evaluate=score, max_drop=0.02)
    assert kept(result) == ["2"]
    assert [rule.match for rule in result.recipe] == ["2", "*"]


def test_sixteen_bits_where_they_are_enough() -> None:
    """A layer that is given an outlier keeps its integer weights, where that is asked for."""
    model, x = mlp().eval(), X.clone()
    x[0, 0] = 200
    with torch.no_grad():
        model[0].weight[:, 0] /= 100
    result, data = ptq.quantize(model, x), Data([x])
    data.run_all(model)
    least = result.summary.sqnr + 6
    kept, variant = Search(variants_of(result, data), Target(min_sqnr=least, wide=True)).run()
    assert kept.layers == kept.wide == ("0",)
    assert kept.reached >= least
    assert kept.bytes == 0
    assert sqnr(model, x, variant.preparation.order.recipe) == kept.reached


def test_a_target_that_is_met_keeps_nothing() -> None:
    """The result is that of the recipe alone, and says so."""
    result = ptq.quantize(mlp(), X, min_sqnr=20)
    assert kept(result) == []
    assert result.summary.kept.is_met
    assert "of at least 20 dB, reached without keeping a layer in float" in str(result)
    assert torch.equal(result.model(X), ptq.quantize(mlp(), X).model(X))


def test_a_target_that_cannot_be_met_warns() -> None:
    """Nothing is kept, and the warning says what was reached."""
    model = mlp()

    with pytest.warns(hs.HalfstepWarning, match=r"up to all 3 of them kept, is 0. None is kept"):
        result = ptq.quantize(
            model, X, evaluate=lambda m: 0.0 if _is_ours(m) else 1.0, max_drop=0.1
        )
    assert kept(result) == []
    assert not result.summary.kept.is_met
    assert "which is not reached; no layer is kept for it" in str(result)


def _is_ours(model: nn.Module) -> bool:
    return "forward" in vars(model)


def test_own_rules_that_are_superseded_go() -> None:
    """The recipe of the result has no rule that matches nothing, and so can be used again."""
    result = ptq.quantize(mlp(), X, destroyed("2", "4"), min_sqnr=30)
    assert kept(result) == ["2", "4"] or kept(result) == ["4", "2"]
    assert all(rule.keep_float for rule in result.recipe.rules)
    ptq.quantize(mlp(), X, result.recipe)


def test_a_model_in_parts() -> None:
    """Where Python stands between programs, whole models are run instead of suffixes."""

    class Halting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.cell = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = x + self.cell(x)
                if x.mean() > 1e6:
                    break
            return x

    x = rand(16, 8)
    result = ptq.quantize(Halting(), x, destroyed("cell.2"), min_sqnr=30)
    assert kept(result) == ["cell.2"]


def test_in_place() -> None:
    """The model itself is changed once, when the list is known."""
    model, recipe = Net(), destroyed("blocks.2")
    result = ptq.quantize(model, IMAGES, recipe, inplace=True, min_sqnr=30)
    assert result.model is model
    assert kept(result) == ["blocks.2"]
    assert not isinstance(model.blocks[2].weight, hs.QTensor)
    assert isinstance(model.blocks[1].weight, hs.QTensor)


def test_the_list_is_kept_when_recalibrating_and_in_files(tmp_path: Path) -> None:
    """Other data bring other ranges and the same layers; a file holds the summary."""
    result = ptq.quantize(Net(), IMAGES, destroyed("blocks.2"), min_sqnr=30)
    assert kept(result.recalibrate(2 * IMAGES)) == ["blocks.2"]
    plain = json.loads(json.dumps(result.summary.to_dict()))
    assert Summary.from_dict(plain) == result.summary
    hs.save(result, tmp_path / "net.halfstep")
    assert torch.equal(hs.load(tmp_path / "net.halfstep")(IMAGES), result.model(IMAGES))


def test_remedies_and_the_search_together() -> None:
    """Corrected biases are part of what is measured: the summary's value is the model's."""
    recipe = destroyed("blocks.2").with_remedies(hs.remedies.CorrectBias())
    result = ptq.quantize(Net(), IMAGES, recipe, min_sqnr=40)
    assert "blocks.2" in kept(result)
    assert result.summary.kept.reached == pytest.approx(result.summary.sqnr)
