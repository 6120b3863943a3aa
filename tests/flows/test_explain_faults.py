"""Planted faults: the first advice names the layer and the cause, and its recipe restores it."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.report.explanation import Explanation
from halfstep.report.records import Advice
from tests.graph.zoo import rand

PER_TENSOR = [
    hs.Rule("*", weight=hs.QSpec(hs.int8, symmetric=True), input=hs.uint8, output=hs.uint8)
]


class Block(nn.Module):
    """A residual block, to which a buffer of zeros may be added."""

    def __init__(self, channels: int, *, spike: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.register_buffer("spike", torch.zeros(1, channels, 12, 12) if spike else None)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to the same."""
        y = x + self.conv2(torch.relu(self.bn1(self.conv1(x))))
        return torch.relu(y if self.spike is None else y + self.spike)


class Net(nn.Module):
    """Three residual blocks and a classifier."""

    def __init__(self, *, spike: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.a, self.b, self.c = Block(12), Block(12, spike=spike), Block(12)
        self.fc = nn.Linear(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, 12, 12) to (N, 6)."""
        x = self.c(self.b(self.a(torch.relu(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


IMAGES = rand(32, 3, 12, 12)


def healthy(**options: bool) -> Net:
    """A model whose norms have seen the data."""
    torch.manual_seed(0)
    net = Net(**options)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    net.train()(IMAGES)
    return net.eval()


def planted(change: Callable[[Net], Any], **options: bool) -> Net:
    """The healthy model with a fault."""
    net = healthy(**options)
    with torch.no_grad():
        change(net)
    return net


def quantized(net: nn.Module, recipe: Any = None, x: Tensor = IMAGES) -> hs.Result:
    """What a recipe comes to, from the float model on; a collapse is what is planted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hs.HalfstepWarning)
        return hs.ptq.quantize(net, x, recipe, check="none")


def sqnr(net: nn.Module, result: hs.Result) -> float:
    """Of the output, against the float model."""
    return hs.explain(net, result, IMAGES, timed=False).output.sqnr


def explained(net: nn.Module, result: hs.Result) -> tuple[Explanation, Advice]:
    """The explanation, and its first advice."""
    found = hs.explain(net, result, IMAGES, timed=False)
    return found, found.advice[0]


def assert_restored(net: nn.Module, found: Explanation, recipe: Any = None) -> None:
    """The suggested recipe, from the float model on, is within 1 dB of the healthy model."""
    assert found.suggested_recipe is not None
    expected = sqnr(healthy(), quantized(healthy(), recipe))
    assert found.output.sqnr < expected - 1
    assert sqnr(net, quantized(net, found.suggested_recipe)) >= expected - 1


def rescaled(net: Net) -> None:
    """One channel is 1000 times as large, and what reads it divides by as much."""
    net.b.bn1.weight[3] *= 1000
    net.b.bn1.bias[3] *= 1000
    net.b.conv2.weight[:, 3] /= 1000


@pytest.mark.parametrize("recipe", [None, PER_TENSOR], ids=["per channel", "per tensor"])
def test_a_channel_that_is_scaled_by_1000(recipe: Any) -> None:
    """The float function is the same; the quantized one collapses, and equalization heals it."""
    net = planted(rescaled)
    found, first = explained(net, quantized(net, recipe))
    assert found.output.sqnr < 20
    assert first.layer == "b.conv1"
    healed = next(one for one in found.advice if one.cause == "outlier channels")
    assert healed.layer == "b.conv1"
    assert "1 of 12 channels" in healed.evidence
    assert [type(one).__name__ for one in healed.remedies] == ["Equalize"]
    assert first.cause in ("outlier channels", "outlier weight channel")
    assert_restored(net, found, recipe)


@pytest.mark.parametrize(
    ("recipe", "cause"), [(None, "outlier channels"), (PER_TENSOR, "outlier weight channel")]
)
def test_a_weight_channel_that_drowns_the_others(recipe: Any, cause: str) -> None:
    """The function is another one, whose output is that channel: no SQNR shows what is lost."""

    def change(net: Net) -> None:
        net.b.conv1.weight[3] *= 1000

    net = planted(change)
    result = quantized(net, recipe)
    found, first = explained(net, result)
    assert (first.layer, first.cause) == ("b.conv1", cause)
    assert first.harm > 20
    better = result if found.suggested_recipe is None else quantized(net, found.suggested_recipe)
    assert sqnr(net, better) > found.output.sqnr - 1


def test_the_last_weights_per_tensor_have_one_large_channel() -> None:
    """The codes of the others are few, so that each class but one loses its precision."""

    def change(net: Net) -> None:
        net.fc.weight[2] *= 1000

    net = planted(change)
    _, first = explained(net, quantized(net, PER_TENSOR))
    assert (first.layer, first.cause) == ("fc", "outlier weight channel")
    assert first.rules[0].match == "fc"
    assert isinstance(first.rules[0].weight, hs.QSpec)
    assert isinstance(first.rules[0].weight.granularity, hs.PerChannel)


@pytest.mark.parametrize(
    ("value", "layer"), [("relu", "stem"), ("relu_3", "b.conv1"), ("relu_4", "b")]
)
def test_a_range_that_is_cut_to_a_tenth(value: str, layer: str) -> None:
    """Most of a layer's values are clipped; min and max of what runs through it heal it."""
    prepared = hs.ptq.prepare(healthy(), IMAGES)
    prepared(IMAGES)
    observer = vars(prepared)["forward"].observers[value]
    low, high = observer.range()
    observer.set_range(float(low) / 10, float(high) / 10)
    net = healthy()
    found, first = explained(net, hs.ptq.convert(prepared))
    assert (first.layer.removesuffix(".conv2"), first.cause) == (layer, "activation clipping")
    assert "lies outside of [0, " in first.evidence
    assert_restored(net, found)


def test_a_range_that_is_cut_by_the_observer_of_a_rule() -> None:
    """A rule that is in the recipe is what has to go, and the suggested recipe is without it."""
    cut = hs.Rule(
        "b.conv1",
        weight=hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True),
        input=hs.uint8,
        output=hs.uint8,
    )
    whole = hs.Rule("[b]", weight=cut.weight, input=hs.uint8, output=hs.uint8)
    rules = [
        hs.Rule(
            rule.match,
            weight=rule.weight,
            input=rule.input,
            output=rule.output,
            observer=hs.PercentileObserver(hs.uint8, percentile=60.0),
        )
        for rule in (cut, whole)
    ]
    net = healthy()
    found, first = explained(net, quantized(net, hs.recipes.static_int8().with_rules(*rules)))
    assert first.cause == "activation clipping"
    assert first.layer.startswith("b")
    assert_restored(net, found)


def test_a_batch_norm_that_is_left_in_training_mode() -> None:
    """The quantized model is right; the float one is what is wrong, and is said to be."""

    def change(net: Net) -> None:
        net.b.bn1.running_mean += 0.5
        net.b.bn1.train()

    net = planted(change)
    result = quantized(net)
    found, first = explained(net, result)
    assert (first.layer, first.cause) == ("b.bn1", "batch norm in training mode")
    assert "model.eval()" in first.action
    assert first.harm > 10
    assert net.b.bn1.training
    expected = sqnr(healthy(), quantized(healthy()))
    again = quantized(net, found.suggested_recipe)
    assert sqnr(net.eval(), again) >= expected - 1


@pytest.mark.parametrize("size", [300.0, 1000.0])
def test_a_residual_add_with_one_huge_value(size: float) -> None:
    """At one place of one channel, in all data: nothing may be cut, so what reads it is kept."""

    def change(net: Net) -> None:
        net.b.spike[0, 3, 5, 5] = size

    net = planted(change, spike=True)
    found, first = explained(net, quantized(net))
    assert first.layer == "b"
    assert first.cause.startswith("outlier")
    kept = next(one for one in found.advice if one.keeps_float)
    assert (kept.layer, kept.cause) == ("b", "outlier values")
    assert "c.conv1" in kept.action
    assert_restored(net, found)


def test_a_huge_value_that_only_the_calibration_data_have() -> None:
    """Ranges are far wider than what runs through them, from that layer on."""
    net, wild = healthy(), copy.deepcopy(IMAGES)
    wild[5, 1, 7, 7] = 1000.0
    found, first = explained(net, quantized(net, x=wild))
    assert (first.layer, first.cause) == ("stem", "outlier values")
    assert "its input has codes for [-" in first.evidence or "its output has" in first.evidence
    assert first.action.startswith("Calibrate without what is rare")
    assert_restored(net, found)


def test_a_layer_whose_bias_overflows() -> None:
    """No engine here is wrong; an ONNX file holds the bias in int32, with coarser weights."""

    def change(net: Net, factor: float = 1e-9) -> None:
        net.c.conv2.weight[5] *= factor
        net.c.conv2.bias[5] = 3.0

    net, twin = planted(change), planted(lambda net: change(net, 1e-3))
    result = quantized(net)
    found, first = explained(net, result)
    assert (first.layer, first.cause) == ("c.conv2", "bias overflow")
    assert "channel 5 is beyond int32" in first.evidence
    assert next(one for one in found.layers if one.layer == "c.conv2").bias_overflow == (5,)
    again = quantized(net, found.suggested_recipe)
    assert sqnr(net, again) >= sqnr(twin, quantized(twin)) - 1


def test_a_bias_that_drowns_its_layer() -> None:
    """Both are said of it: that it is far beyond the other channels, and that no file holds it."""

    def change(net: Net) -> None:
        net.b.conv1.bias[5] = 1e6

    net = planted(change)
    found, first = explained(net, quantized(net))
    assert first.layer == "b.conv1"
    causes = {one.cause for one in found.advice if one.layer == "b.conv1"}
    assert "bias overflow" in causes


def test_a_healthy_model_gets_no_advice() -> None:
    """Nothing is wrong, and nothing is suggested."""
    net = healthy()
    found = hs.explain(net, quantized(net), IMAGES, timed=False)
    assert found.output.sqnr > 40
    assert found.advice == ()
    assert found.suggested_recipe is None
