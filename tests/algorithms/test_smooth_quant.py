"""Smoothed models compute what they did, and share the difficulty as the paper says."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.algorithms.smooth_quant import sites, smoothed
from halfstep.algorithms.smooth_quant.maths import smoothing_factors
from halfstep.graph.run import find
from tests.algorithms.revised import revised_model
from tests.graph.passes import exported

X = torch.randn(3, 5, 8, dtype=torch.float64) * torch.logspace(-1, 1, 8).double()


class Before(nn.Module):
    """A LayerNorm before three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value = (nn.Linear(8, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, 8) to (N, T, 4)."""
        y = self.norm(x)
        return F.scaled_dot_product_attention(self.query(y), self.key(y), self.value(y))


class Behind(nn.Module):
    """A LayerNorm whose value is also added, and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, T, 8) to the same, twice."""
        y = self.norm(x)
        return y + self.fc(y), y


class WrittenOut(nn.Module):
    """An RMSNorm in plain operators, and one of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 0.5)
        self.fc, self.norm, self.out = nn.Linear(8, 8), nn.RMSNorm(8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, 8) to (N, T, 2)."""
        y = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return self.out(self.norm(torch.relu(self.fc(y))))


MODELS = {"before": (Before, 1), "behind": (Behind, 1), "written out": (WrittenOut, 2)}


def maxima(model: nn.Module) -> dict[str, Tensor]:
    """Made-up magnitudes for every value that may be smoothed."""
    torch.manual_seed(1)
    program = exported(model, X)
    tensors = {name: find(model, path) for name, path in program.parameters.items()}
    return {site.maker.name: torch.rand(8) * 9 + 0.1 for site in sites(program, tensors, ())}


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", MODELS)
def test_the_function_stays(name: str, alpha: float) -> None:
    """In double precision to 1e-12 of it, all outputs, whoever else reads the norm's value."""
    make, count = MODELS[name]
    torch.manual_seed(0)
    model = make().double()
    x_max = maxima(model)
    assert len(x_max) == count
    found = smoothed(exported(model, X), model, x_max, alpha)
    assert found.done
    expected, given = model(X), revised_model(model, found)(X)
    several = zip(expected, given, strict=True) if name == "behind" else [(expected, given)]
    for one, other in several:
        assert (one - other).abs().max() <= 1e-12 * one.abs().max()


def test_half_of_the_difficulty_each() -> None:
    """At alpha = 0.5 activations and weights have the same range in every channel."""
    model = Before().double()
    (name, x_max), *_ = maxima(model).items()
    found = smoothed(exported(model, X), model, {name: x_max}, 0.5)
    s = model.norm.weight.detach() / found.weights["norm.weight"]
    names = ("query.weight", "key.weight", "value.weight")
    w_max = torch.stack([found.weights[each].abs().amax(0) for each in names]).amax(0)
    torch.testing.assert_close(x_max.double() / s, w_max)


def test_a_channel_that_is_always_zero_keeps_its_scale() -> None:
    """On either side; nothing is divided by zero."""
    x_max, w_max = torch.tensor([0.0, 2.0, 8.0]), torch.tensor([1.0, 0.0, 2.0])
    assert smoothing_factors(x_max, w_max, 0.5).tolist() == [1.0, 1.0, 2.0]


def test_weights_that_others_read_are_refused() -> None:
    """With the reason, and the norm stays as it is."""
    model = Before().double()
    found = smoothed(exported(model, X), model, maxima(model), 0.5, fixed={"key.weight"})
    assert found.refused == {"layer_norm": "others share key.weight"}
    assert not found.weights


def test_elsewhere_a_multiplication_is_inserted() -> None:
    """Before a linear layer that reads no norm; the others stay as they are, and the function."""
    model = WrittenOut().double()
    program = exported(model, X)
    tensors = {name: find(model, path) for name, path in program.parameters.items()}
    first = next(site for site in sites(program, tensors, (), elsewhere=True))
    plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    found = smoothed(exported(plain, X), plain, {"tanh": torch.rand(8) + 0.1}, 0.5, elsewhere=0.7)
    assert first.weight == "weight"
    assert found.done == {"linear_1": "smoothed"}
    assert [step.op for step in found.program.steps].count("aten.mul.Tensor") == 1
    expected, given = plain(X), revised_model(plain, found)(X)
    assert (expected - given).abs().max() <= 1e-12 * expected.abs().max()
