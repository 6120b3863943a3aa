"""Equalized layers compute what they did, and their ranges are equal."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.algorithms.cross_layer_equalization import equalized
from halfstep.algorithms.cross_layer_equalization.maths import Layout, ranges, scaled
from halfstep.graph.channel_clamp import CLAMP_CHANNELS
from tests.algorithms.revised import revised_model
from tests.graph.passes import exported

IMAGE, SIGNAL, ROWS = (3, 4, 6, 6), (3, 4, 9), (5, 4)


def chain(*layers: nn.Module) -> nn.Sequential:
    """Layers whose channels have ranges of many sizes, in double precision."""
    torch.manual_seed(0)
    model = nn.Sequential(*layers).double().eval()
    for parameter in model.parameters():
        parameter.data *= (
            torch.logspace(-1, 1, len(parameter)).double().reshape(-1, *[1] * (parameter.ndim - 1))
        )
    return model


CHAINS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "relu": (lambda: chain(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 1)), IMAGE, 2),
    "relu6": (lambda: chain(nn.Conv2d(4, 6, 3), nn.ReLU6(), nn.Conv2d(6, 2, 1)), IMAGE, 2),
    "hardtanh": (lambda: chain(nn.Conv1d(4, 6, 3), nn.Hardtanh(), nn.Conv1d(6, 2, 1)), SIGNAL, 2),
    "nothing between": (lambda: chain(nn.Linear(4, 6), nn.Linear(6, 3)), ROWS, 2),
    "leaky": (lambda: chain(nn.Linear(4, 6), nn.LeakyReLU(0.1), nn.Linear(6, 3)), ROWS, 2),
    "prelu": (lambda: chain(nn.Conv2d(4, 6, 3), nn.PReLU(6), nn.Conv2d(6, 2, 1)), IMAGE, 2),
    "depthwise": (
        lambda: chain(
            nn.Conv2d(4, 6, 1, bias=False),
            nn.ReLU6(),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.ReLU6(),
            nn.Conv2d(6, 2, 1),
        ),
        IMAGE,
        3,
    ),
    "groups": (
        lambda: chain(nn.Conv2d(4, 6, 1, groups=2), nn.ReLU(), nn.Conv2d(6, 9, 3, groups=3)),
        IMAGE,
        2,
    ),
    "transposed": (
        lambda: chain(
            nn.ConvTranspose2d(4, 6, 2, groups=2), nn.ReLU(), nn.ConvTranspose2d(6, 2, 3)
        ),
        IMAGE,
        2,
    ),
    "pools and flattened": (
        lambda: chain(
            nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 3)
        ),
        IMAGE,
        2,
    ),
    "padded and averaged": (
        lambda: chain(
            nn.Conv2d(4, 6, 3),
            nn.ZeroPad2d(1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        IMAGE,
        2,
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_function_stays(name: str) -> None:
    """In double precision to 1e-12 of it, however different the ranges are; clamps as well."""
    make, shape, layers = CHAINS[name]
    model, x = make(), torch.randn(shape, dtype=torch.float64) * 3
    found = equalized(exported(model, x), model)
    assert len(found.done) == layers
    assert not found.refused
    expected, given = model(x), revised_model(model, found)(x)
    assert (expected - given).abs().max() <= 1e-12 * expected.abs().max()


@pytest.mark.parametrize("name", CHAINS)
def test_the_ranges_are_equal(name: str) -> None:
    """Of each channel between two layers, by the weights alone: what the scales were found for."""
    make, shape, _ = CHAINS[name]
    model = make()
    program = exported(model, torch.randn(shape, dtype=torch.float64))
    found = equalized(program, model)
    layers = [step for step in program.steps if step.name in found.done]
    for first, second in itertools.pairwise(layers):
        transposed = "transpose" in first.op
        groups = [1 if "linear" in s.op else s.args[6] for s in (first, second)]
        weights = [found.weights[s.args[1].name] for s in (first, second)]
        r1 = ranges(weights[0], Layout(groups[0], transposed), of_outputs=True)
        r2 = ranges(weights[1], Layout(groups[1], transposed), of_outputs=False)
        torch.testing.assert_close(r1, r2.reshape(len(r1), -1).amax(1), rtol=1e-3, atol=0)


def test_equal_ranges_lose_less_in_one_scale_for_all_channels() -> None:
    """The claim: a network whose inner channels differ by 100 is 10 dB nearer in 8 bits."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    t = torch.logspace(-1, 1, 8)
    model[0].weight.data *= t.reshape(-1, 1, 1, 1)
    model[0].bias.data *= t
    model[2].weight.data /= t.reshape(1, -1, 1, 1)
    x = torch.randn(16, 4, 6, 6)
    one_scale = hs.Rule("*", weight=hs.QSpec(hs.int8, symmetric=True))
    recipe = hs.recipes.weight_only().with_rules(one_scale)
    plain = hs.ptq.quantize(model, x, recipe).summary.sqnr
    better = hs.ptq.quantize(model, x, recipe.with_remedies(hs.remedies.Equalize())).summary.sqnr
    assert plain is not None
    assert better is not None
    assert better > plain + 10


def test_a_clamp_gets_bounds_for_each_channel() -> None:
    """Those of relu6 divided by what its channels are divided by."""
    model = CHAINS["relu6"][0]()
    found = equalized(exported(model, torch.randn(IMAGE, dtype=torch.float64)), model)
    (clamp,) = [step for step in found.program.steps if step.op == CLAMP_CHANNELS]
    low, high = (found.program.constants[value.name] for value in clamp.args[1:])
    s = model[0].bias.detach() / found.weights["0.bias"]
    assert (low == 0).all()
    torch.testing.assert_close(high, 6 / s)


class Twice(nn.Module):
    """A value that two layers read, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) to the same."""
        y = self.a(x)
        return self.c(torch.relu(self.b(y))) + self.c(y)


def test_what_others_read_stays() -> None:
    """A value that is read twice is no pair; a weight that is, is refused with the reason."""
    model = Twice().double()
    found = equalized(exported(model, torch.randn(ROWS, dtype=torch.float64)), model)
    assert not found.done
    assert found.refused == {"linear_1": "others share a weight or bias of c"}
    assert not found.weights


def test_bounds_behind_a_linear_layer_are_refused() -> None:
    """Their channels are last, where no clamp of ours has bounds for each."""
    model = chain(nn.Linear(4, 6), nn.ReLU6(), nn.Linear(6, 3))
    found = equalized(exported(model, torch.randn(ROWS, dtype=torch.float64)), model)
    assert found.refused == {"linear": "the bounds behind a linear layer are one for all channels"}


def test_weights_that_are_fixed_stay() -> None:
    """Parameters that other programs read are not touched."""
    model = CHAINS["relu"][0]()
    program = exported(model, torch.randn(IMAGE, dtype=torch.float64))
    assert not equalized(program, model, fixed={"2.weight"}).weights


@pytest.mark.parametrize("of_outputs", [True, False])
@pytest.mark.parametrize("layout", [Layout(), Layout(2), Layout(2, transposed=True)])
def test_scaling_a_channel_scales_its_range(layout: Layout, *, of_outputs: bool) -> None:
    """Whatever the layout of the weight."""
    w = torch.randn(4, 6, 3, 3)
    before = ranges(w, layout, of_outputs=of_outputs)
    s = torch.rand(len(before)) + 0.5
    after = ranges(scaled(w, s, layout, of_outputs=of_outputs), layout, of_outputs=of_outputs)
    torch.testing.assert_close(after, before * s)
