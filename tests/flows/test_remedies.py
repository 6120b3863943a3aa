"""Remedies in the flow: when they run, what they change, and what is said of them."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs
from halfstep.flows import corrections, ptq
from halfstep.flows.data import Data
from halfstep.flows.order import order
from halfstep.flows.preparation import traced
from halfstep.flows.watch import watches_in
from halfstep.graph.product import install
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only
from tests.flows.models import assert_same, snapshot

EQUALIZE, SMOOTH, BIAS = hs.remedies.Equalize(), hs.remedies.Smooth(), hs.remedies.CorrectBias()
NORMS = hs.remedies.ReestimateBatchNorm()
EVERY = (EQUALIZE, SMOOTH, BIAS, NORMS)


class Network(nn.Module):
    """Convolutions with batch norm and ReLU6, then a LayerNorm that is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn1 = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.deep, self.bn2 = nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 6, 1)
        self.norm, self.fc, self.out = nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 4)."""
        x = F.relu6(self.bn1(self.stem(x)))
        x = F.relu6(self.bn2(self.deep(x)))
        x = self.norm(torch.relu(self.wide(x)).mean((2, 3)))
        return self.out(x + self.fc(x))


def network() -> Network:
    """Always the same weights, whose channels have ranges of many sizes."""
    torch.manual_seed(0)
    model = Network().eval()
    model.bn1.weight.data, model.bn2.weight.data = torch.logspace(-1, 1, 8), torch.rand(8) * 4
    for norm in (model.bn1, model.bn2):
        norm.bias.data.fill_(2)
    model.norm.weight.data = torch.logspace(0, 2, 6)
    return model


torch.manual_seed(3)
X = torch.randn(32, 3, 8, 8)
FOUR_BITS = hs.Recipe(
    "four bits",
    [
        hs.Rule(
            "*",
            weight=hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True),
            input=hs.uint8,
            output=hs.uint8,
        )
    ],
)


def quantized(recipe: hs.Recipe, *remedies: hs.spec.remedies.Remedy) -> hs.Result:
    """The network on two batches."""
    return ptq.quantize(network(), list(X.split(16)), recipe.with_remedies(*remedies))


def test_the_float_model_stays() -> None:
    """All remedies together change no bit of the model that was given."""
    model = network()
    before = snapshot(model)
    ptq.quantize(model, X, FOUR_BITS.with_remedies(*EVERY))
    assert_same(before, snapshot(model))


def test_equalized_and_smoothed_work_computes_the_float_function() -> None:
    """The float program over the new weights, to float rounding; so its values can be compared."""
    asked = order(network(), static_int8().with_remedies(EQUALIZE, SMOOTH), has_data=True)
    preparation = traced(network(), asked, Data(X))
    programs = {part.path: [part.program] for part in preparation.parts}
    twin = copy.deepcopy(preparation.work)
    install(twin, programs)
    expected, given = network()(X), twin(X)
    assert not torch.equal(preparation.work.wide.weight, network().wide.weight)
    assert (expected - given).abs().max() <= 1e-5 * expected.abs().max()


def test_the_table_says_what_was_done() -> None:
    """Layer by layer, in the order in which it was done."""
    rows = {row.layer: row.why for row in quantized(FOUR_BITS, *EVERY).coverage}
    assert rows["stem"] == "equalized, batch norm re-estimated"
    assert rows["fc"] == "smoothed, bias corrected"
    assert rows["out"] == "bias corrected"


@pytest.mark.parametrize("remedies", [(EQUALIZE,), (SMOOTH,), (BIAS,), (NORMS, BIAS), EVERY])
def test_the_engine_computes_the_integers_of_the_reference(
    remedies: tuple[hs.spec.remedies.Remedy, ...],
) -> None:
    """Bounds for each channel, factors and new biases included."""
    result = quantized(static_int8(), *remedies)
    assert result.summary.equality["torch"].startswith("equal to the reference in all")


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_other_engines_run_what_remedies_make(engine: str) -> None:
    """As near to the float model as ours, to half a decibel."""
    pytest.importorskip("onnx")
    pytest.importorskip(engine)
    recipe = static_int8().with_remedies(*EVERY)
    other = ptq.quantize(network(), list(X.split(16)), recipe, engine=engine).summary.sqnr
    assert other == pytest.approx(quantized(static_int8(), *EVERY).summary.sqnr, abs=0.5)


def test_corrections_bring_the_model_nearer() -> None:
    """In four bits by at least 3 dB, by bias correction and by batch norms re-estimated as well."""
    plain, biased = quantized(FOUR_BITS).summary.sqnr, quantized(FOUR_BITS, BIAS).summary.sqnr
    both = quantized(FOUR_BITS, NORMS, BIAS).summary.sqnr
    assert plain is not None
    assert biased is not None
    assert both is not None
    assert biased > plain + 3
    assert both > biased


def test_corrections_change_the_quantized_model_alone() -> None:
    """A parameter bias of the model is another; that of its float form is as it was."""
    result = quantized(FOUR_BITS, BIAS)
    assert result.preparation is not None
    assert torch.equal(result.preparation.work.fc.bias, network().fc.bias)
    assert not torch.equal(result.model.fc.bias, network().fc.bias)
    (part,) = result.parts[""]
    assert [name for name in part.program.constants if "bias_corrected" in name] == [
        "out.bias_corrected"
    ]


def test_prepare_and_convert_do_the_same() -> None:
    """On the same data, in one's own loop; smoothing has looked at the example."""
    recipe = FOUR_BITS.with_remedies(EQUALIZE, BIAS, NORMS)
    prepared = ptq.prepare(network(), X[:4], recipe)
    for half in X.split(16):
        prepared(half)
    model = ptq.convert(prepared).model
    assert torch.equal(model(X), quantized(FOUR_BITS, EQUALIZE, BIAS, NORMS).model(X))


def test_what_was_kept_goes_with_the_observers() -> None:
    """After a reset other data decide, as if there had been none before."""
    prepared = ptq.prepare(network(), X[:4], FOUR_BITS.with_remedies(BIAS))
    prepared(X * 3)
    hs.reset_observers(prepared)
    for half in X.split(16):
        prepared(half)
    assert torch.equal(ptq.convert(prepared).model(X), quantized(FOUR_BITS, BIAS).model(X))


def test_recalibrating_repeats_the_remedies() -> None:
    """On the new data, from the float model."""
    again = ptq.quantize(network(), X[:8], FOUR_BITS.with_remedies(*EVERY)).recalibrate(
        list(X.split(16))
    )
    assert torch.equal(again.model(X), quantized(FOUR_BITS, *EVERY).model(X))


def test_data_that_can_be_read_once_are_read_once() -> None:
    """Looking ahead keeps what it has read for calibrating."""
    recipe = static_int8().with_remedies(SMOOTH)
    once = ptq.quantize(network(), (half for half in X.split(16)), recipe)
    assert torch.equal(once.model(X), quantized(static_int8(), SMOOTH).model(X))
    assert once.summary.batches == 2


@pytest.mark.parametrize("remedy", [SMOOTH, BIAS, NORMS])
def test_a_remedy_without_its_data_is_refused(remedy: hs.spec.remedies.Remedy) -> None:
    """Its name, and the way out."""
    with pytest.raises(hs.ArgumentError, match="looks at data: give batches, or leave it out"):
        ptq.quantize(network(), recipe=dynamic_int8().with_remedies(remedy))


@pytest.mark.parametrize(
    ("remedy", "reason"),
    [
        (EQUALIZE, "no two layers follow one another with only activations between them"),
        (SMOOTH, "no linear layer reads a LayerNorm or RMSNorm"),
        (BIAS, "no layer with integers for its weight is left to it"),
        (NORMS, "no batch norm was folded into a layer that has a scale for each output channel"),
    ],
)
def test_a_remedy_that_found_nothing_says_so(remedy: hs.spec.remedies.Remedy, reason: str) -> None:
    """In the notes of the table."""
    recipe = static_int8().with_remedies(remedy)
    result = ptq.quantize(nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)), X, recipe)
    name = type(remedy).__name__
    assert f"{name} found nothing to do: {reason}" in result.coverage.notes


def test_without_data_layers_are_seen_one_by_one() -> None:
    """So that there is no pair to equalize; a note says it."""
    result = ptq.quantize(network(), recipe=weight_only().with_remedies(EQUALIZE))
    assert any("Equalize found nothing to do" in note for note in result.coverage.notes)


def test_a_remedied_model_survives_its_file(tmp_path: Path) -> None:
    """The same outputs, and the recipe with its remedies."""
    result = quantized(FOUR_BITS, *EVERY)
    hs.save(result, tmp_path / "model.halfstep")
    assert torch.equal(hs.load(tmp_path / "model.halfstep")(X), result.model(X))


def test_a_copy_has_the_same_biases() -> None:
    """Of a quantized model, whose corrected biases are its own."""
    result = quantized(FOUR_BITS, BIAS)
    assert torch.equal(copy.deepcopy(result.model)(X), result.model(X))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inputs, and of batches that are simulated together; a note says on how many."""
    watched = ptq.prepare(network(), X[:4], FOUR_BITS.with_remedies(BIAS))
    (watch,) = watches_in(watched)[""]
    watch.room = 3 * X[:4].nbytes
    for batch in X.split(4):
        watched(batch)
    assert len(watch.kept) == 3
    monkeypatch.setattr(corrections, "MOST_BYTES", 1)
    result = ptq.convert(watched)
    assert "biases are corrected on 1 of 3 batches, as memory allows" in result.coverage.notes


@pytest.mark.parametrize(
    "slots",
    [
        {"weight": FOUR_BITS[0].weight, "weight_observer": hs.HistogramObserver},
        {"weight": hs.HistogramObserver(FOUR_BITS[0].weight)},
    ],
)
def test_a_rule_chooses_the_range_of_its_weights(slots: dict[str, Any]) -> None:
    """By an observer of its own, or in the place of the format; the error becomes smaller."""
    model = nn.Linear(64, 8)
    torch.manual_seed(0)
    model.weight.data = torch.randn(8, 64)
    made = [
        ptq.quantize(model, recipe=[hs.Rule("*", **given)]).model.weight
        for given in ({"weight": FOUR_BITS[0].weight}, slots)
    ]
    weight = model.weight.detach()
    errors = [float((each.dequantize() - weight).pow(2).sum()) for each in made]
    assert errors[1] < 0.95 * errors[0]
    observer = hs.HistogramObserver(FOUR_BITS[0].weight)
    observer(model.weight)
    assert torch.equal(made[1].scale, observer.qparams()[0])


class Cut(nn.Module):
    """Two linear layers whose weights are halves of one parameter, without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Parameter(torch.randn(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 6) to (N, 8)."""
        first, second = self.both.chunk(2)
        return torch.cat([F.linear(x, first), F.linear(x, second)], 1)


def test_layers_whose_weights_are_cut_get_biases() -> None:
    """Each its own, as constants of the program."""
    torch.manual_seed(0)
    x = torch.rand(32, 6)
    result = ptq.quantize(Cut(), x, FOUR_BITS.with_remedies(BIAS))
    (part,) = result.parts[""]
    assert len([name for name in part.program.constants if "bias_corrected" in name]) == 2
    assert result.summary.sqnr > ptq.quantize(Cut(), x, FOUR_BITS).summary.sqnr


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("remedies", [(BIAS,), EVERY], ids=["biases", "every"])
def test_models_of_other_floats_are_corrected(
    dtype: torch.dtype, remedies: tuple[hs.spec.remedies.Remedy, ...]
) -> None:
    """The simulation is given rounded values in the dtype that the model computes with."""
    model, x = network().to(dtype), X.to(dtype)
    result = ptq.quantize(model, x, static_int8().with_remedies(*remedies))
    whys = [row.why for row in result.coverage if row.op in {"conv2d", "linear"}]
    assert all("corrected" in why or "re-estimated" in why for why in whys)
    assert result.model(x).dtype == dtype
    assert result.summary.sqnr is not None
    assert result.summary.sqnr > 20
