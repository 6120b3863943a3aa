"""The shortest list of layers to keep in float, on real networks and real data."""

import pytest
import torch

import halfstep as hs
from examples.real import effnet_lite0, minilm

pytestmark = [pytest.mark.models, pytest.mark.slow]


def kept(result: hs.Result) -> list[str]:
    """What the rules of a result keep in float."""
    return [rule.match for rule in result.recipe if rule.keep_float]


def test_a_destroyed_layer_of_effnet_is_found() -> None:
    """Of sixty it alone is kept, and the recipe makes the same model from the float one again."""
    model, images = effnet_lite0.load_model(), list(effnet_lite0.photographs().split(8))
    rough = hs.QSpec(hs.int2, hs.PerChannel(0), symmetric=True)
    rule = hs.Rule("_blocks.9._expand_conv", weight=rough, input=hs.uint8, output=hs.uint8)
    recipe = hs.recipes.static_int8().with_rules(rule)
    options = {"progress": False, "check": "none"}
    result = hs.ptq.quantize(model, images, recipe, min_sqnr=15, **options)
    assert kept(result) == ["_blocks.9._expand_conv"]
    assert result.summary.kept.before < 10
    again = hs.ptq.quantize(model, images, result.recipe, **options)
    assert again.summary.sqnr == result.summary.sqnr >= 15
    assert torch.equal(again.model(images[0]), result.model(images[0]))


def test_minilm_reaches_twenty_decibels() -> None:
    """Measured: 18.8 dB with all in integers, 20.04 dB with one linear layer of 45 in float."""
    model, texts = minilm.load_model(), minilm.background()[:40]
    batches = [model.tokens(texts[start : start + 8]) for start in range(0, len(texts), 8)]
    options = {"progress": False, "check": "none"}
    result = hs.ptq.quantize(model, batches, min_sqnr=20, **options)
    assert 1 <= len(kept(result)) <= 3
    again = hs.ptq.quantize(model, batches, result.recipe, **options)
    assert again.summary.sqnr == result.summary.sqnr >= 20
