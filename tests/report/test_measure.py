"""What is measured of each operator, for models of every kind and every recipe."""

import copy
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor, nn

import halfstep as hs
from halfstep.engines import by_name
from halfstep.graph.capture import capture
from halfstep.graph.product import product
from halfstep.report.measure import Measuring, Pair
from halfstep.report.records import SOURCES, Layer
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only
from tests.graph.zoo import Formula, rand, tokens
from tests.graph.zoo_cases import PARTS, WHOLE, made
from tests.report.measured import measured, measuring
from tests.strategies import QUICK

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

CASES = {**WHOLE, **{name: case for name, (case, _) in PARTS.items()}}
RECIPES: dict[str, Callable[[], Recipe]] = {
    "static": static_int8,
    "dynamic": dynamic_int8,
    "weight_only": weight_only,
    "int4": lambda: weight_only(hs.int4, group_size=2),
}
# One of every kind of operator, and of every way in which a model is captured.
SOME = (
    *("shuffle", "attend", "block", "tied", "outputs", "transposed1d", "conv3d", "mha", "quiet"),
    *("embedding_bag", "lstm_states", "greedy", "branching", "max_pool", "SiLU", "several_inputs"),
)


def call(model: nn.Module, batch: Any) -> Any:
    """Run a model on one call of a case."""
    args, kwargs = batch
    return model(*args, **kwargs)


def check_layer(layer: Layer) -> None:
    """What holds for each layer that was quantized and has run."""
    assert layer.local is not None
    split = layer.split
    assert tuple(split.sources) == SOURCES
    # The integer kernel rounds a sum that lies at a tie to one side, the float operator to another.
    assert split.total == pytest.approx(layer.local.noise, rel=1e-3, abs=1e-9 * layer.local.signal)
    assert sum(split.sources.values()) + split.cross == pytest.approx(split.total, rel=1e-9)
    if layer.runs.endswith("weights") and not layer.runs.startswith("int8,"):
        assert all(not split.sources[source] for source in SOURCES[2:])
        assert (layer.inputs, layer.output) == ((), None)


def check_case(name: str, way: str, *, has_data: bool) -> None:
    """Measure a case of the zoo on all of its calls."""
    case = CASES[name]
    example = case.arguments()[:1] if has_data else None
    forward = call if has_data else None
    result = hs.ptq.quantize(made(case), example, RECIPES[way](), forward=forward, check="none")
    work = measuring(result)
    with torch.no_grad():
        for batch in case.arguments():
            work.run(lambda model, batch=batch: call(model.eval(), batch))
    layers = work.layers()
    assert len({layer.value for layer in layers}) == len(layers)
    assert [layer.depth for layer in layers] == list(range(len(layers)))
    for layer in layers:
        if layer.split is not None:
            check_layer(layer)
    assert any(layer.local is not None for layer in layers) or name == "mha"


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_kinds(name: str, way: str) -> None:
    """Splits add up to the measured error, whatever the operator and the way of capturing."""
    check_case(name, way, has_data=True)


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", [way for way in RECIPES if way != "static"])
def test_every_model_by_layers(name: str, way: str) -> None:
    """The same for every model of the zoo, seen layer by layer; as wholes they are explained."""
    check_case(name, way, has_data=False)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(6, 4),
        nn.Conv1d(6, 4, 3),
        nn.ConvTranspose1d(6, 4, 3, stride=2),
    ],
    ids=["linear", "conv", "conv_transpose"],
)
def test_one_layer_gathers_what_is_its_own(model: nn.Module) -> None:
    """In a model of one layer the local error is the accumulated one."""
    x = rand(2, 6) if isinstance(model, nn.Linear) else rand(2, 6, 9)
    (layer,) = measured(model.eval(), [x, x / 2])
    assert layer.local == layer.accumulated
    assert layer.local.noise > 0
    assert layer.local.elements == 2 * model(x).numel()


@settings(QUICK, max_examples=15)
@given(st.integers(0, 2**31), st.sampled_from([1.0, 0.1, 100.0]), st.sampled_from([0.3, 1.0, 3.0]))
def test_splits_add_up_under_clipping(seed: int, weight: float, beyond: float) -> None:
    """Energies and cross terms are the total, when later batches leave the range, too."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Flatten())
    model = nn.Sequential(model, nn.Linear(8 * 16, 4)).eval()
    with torch.no_grad():
        model[0][0].weight[2] *= weight
    x = torch.randn(4, 3, 6, 6)
    layers = [layer for layer in measured(model, [x, x * beyond]) if layer.local is not None]
    assert len(layers) == 3
    for layer in layers:
        check_layer(layer)
        assert (layer.split.sources["input clipping"] > 0) <= (beyond > 0.9 or weight > 1)


def test_sources_that_are_planted() -> None:
    """Cut a range: clipping of the output; a wide channel in a weight: rounding of the weight."""
    x = rand(64, 6)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    first, _ = measured(model, [x / 10, x, x, x, x, x, x])
    assert first.split.largest in {"input clipping", "output clipping"}
    assert first.inputs[0].saturated > 0.1
    wide = copy.deepcopy(model)
    with torch.no_grad():
        wide[2].weight[0, 0] *= 1000
    rule = hs.Rule("2", weight=hs.QSpec(hs.int8, symmetric=True), input=hs.uint8, output=hs.uint8)
    _, second = measured(wide, [x], static_int8().with_rules(rule))
    assert second.weight.outliers == (0,)
    assert second.weight.channel_spread > 100


def test_a_model_that_is_not_quantized_is_equal() -> None:
    """Two forms of one model differ in nothing, in parts and as a whole."""
    for name in ("block", "branching", "LSTM_deep"):
        case = CASES[name]
        model = made(case).eval()
        captured = capture(model, *case.arguments()[0])
        pairs = [Pair(path, p, p) for path, several in captured.programs.items() for p in several]
        work = Measuring((model, product(model, captured)), pairs, by_name("torch"))
        with torch.no_grad():
            y, found = work.run(lambda model, case=case: call(model, case.arguments()[0]))
        assert all(map(torch.equal, _tensors(y), _tensors(found)))
        errors = [layer.accumulated for layer in work.layers() if layer.accumulated is not None]
        assert errors
        assert all(error.noise == error.largest == 0 for error in errors)
        assert all(layer.local is None for layer in work.layers())


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, Tensor)]


def test_what_is_told_of_a_layer() -> None:
    """What runs as one is one layer: its names, its bytes, what it reads, and its statistics."""
    model = nn.Sequential(made(CASES["block"]), nn.Conv2d(8, 2, 1)).eval()
    layers = measured(model, [rand(2, 3, 8, 8)])
    by_name = {layer.layer: layer for layer in layers}
    assert all(layer.runs == "int8" for layer in layers)
    assert sorted(by_name) == ["0.conv1", "0.conv2", "0.skip", "1"]
    summed = next(layer for layer in layers if layer.fused == ("add", "relu"))
    assert (summed.op, len(summed.operators), summed.operators[-1]) == ("conv2d", 3, summed.value)
    assert set(summed.reads) == {"input", by_name["0.conv2"].value}
    assert by_name["1"].reads == (summed.value,)
    first = by_name["0.conv1"]
    assert (first.weight.name, first.inputs[0].axis) == ("0.conv1.weight", 1)
    assert first.output in by_name["0.conv2"].inputs
    assert len(first.output.channel_low) == 8
    count = sum(parameter.numel() for parameter in nn.Conv2d(8, 2, 1).parameters())
    assert (by_name["1"].before, by_name["1"].after) == (4 * count, 16 + 2 * (4 + 4 + 4))


def test_models_stay_as_they_are() -> None:
    """Measuring leaves no trace in either model."""
    x = rand(8, 6)
    result = hs.ptq.quantize(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), x)
    expected = result.model(x)
    before = {**vars(result.model), **vars(result.preparation.work)}
    with torch.no_grad():
        measuring(result).run(lambda model: model(x))
    assert {**vars(result.model), **vars(result.preparation.work)} == before
    assert torch.equal(result.model(x), expected)


def test_a_layer_called_in_two_ways_is_one() -> None:
    """By layers, a layer has a program for each kind of input; its errors are added up."""

    def both(x: Tensor) -> Tensor:
        return x.sum() + F.relu(x)

    model = Formula(both)
    result = hs.ptq.quantize(model, recipe=dynamic_int8())
    work = measuring(result)
    with torch.no_grad():
        for x in (rand(2, 6), rand(2, 3, 6)):
            work.run(lambda model, x=x: model(x))
    (layer,) = work.layers()
    assert layer.local.elements == 2 * 6 + 2 * 3 * 6
    check_layer(layer)


def test_layers_inside_fused_attention_are_measured() -> None:
    """Torch runs such an encoder past its layers; while it is measured it does not."""
    before = torch.backends.mha.get_fastpath_enabled()
    check_case("encoder_layer", "dynamic", has_data=False)
    assert torch.backends.mha.get_fastpath_enabled() == before


def test_tokens_take_no_part_in_errors() -> None:
    """Indices are compared by nobody; the table's rows are."""
    layers = measured(made(CASES["tied"]), [tokens(2, 5)], weight_only())
    assert [layer.runs for layer in layers if layer.op == "embedding"] == ["int8 weights"]


def test_half_precision() -> None:
    """A model in half precision is measured in float32, and its sources add up."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).half().eval()
    weight = hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True)  # beside it, half's own is small
    recipe = [hs.Rule("*", weight=weight, input=hs.uint8, output=hs.uint8)]
    layers = [layer for layer in measured(model, [rand(8, 6).half()], recipe) if layer.local]
    assert layers
    for layer in layers:
        assert layer.split.total == pytest.approx(layer.local.noise, rel=0.05)


def test_another_runtime_is_measured_by_the_engine_that_shows_steps() -> None:
    """ONNX Runtime returns outputs alone: the steps are those of the torch engine."""
    pytest.importorskip("onnxruntime")
    x = rand(8, 6)
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    result = hs.ptq.quantize(model, x, check="none")
    fast = hs.deploy(result, engine="onnxruntime", example=x)
    made_of = result.preparation
    pairs = [Pair("", made_of.parts[0].program, result.parts[""][0])]
    work = Measuring((made_of.work, fast), pairs, by_name("onnxruntime"))
    with torch.no_grad():
        _, found = work.run(lambda model: model(x))
    assert torch.equal(found, fast(x))
    assert [layer.runs for layer in work.layers()] == ["int8", "int8"]
