"""Batch norms become part of the layers before them, within rounding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.graph.capture import Captured, Region
from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.fold import fold
from halfstep.graph.product import product
from tests.graph.folding import assert_close, assert_folds, assert_stays, norms, put, randomize
from tests.graph.passes import CASES, captured, exported, pairs, prepared
from tests.graph.zoo import rand

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


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
