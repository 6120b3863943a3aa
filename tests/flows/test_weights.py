"""How weights are simulated: recomputed calls, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import halfstep as hs
from halfstep.flows.layers import find_layers


class Block(nn.Module):
    """One layer that is called, and one whose weight is used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4) to (N, 4)."""
        return nn.functional.linear(self.first(x).relu(), self.second.weight)


class Checkpointed(nn.Module):
    """A block whose activations may be recomputed in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.recomputes = Block(), True

    def forward(self, x: Tensor) -> Tensor:
        """The block, checkpointed or not."""
        if not self.recomputes:
            return self.block(x)
        out: Tensor = checkpoint(self.block, x, use_reentrant=False)
        return out


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    """The call that backward repeats sees the same quantized weights."""
    model, x = Checkpointed(), torch.randn(3, 4)
    gradients = []
    for saved in (True, False):
        model.zero_grad()
        model.recomputes = saved
        with hs.simulate(model, {nn.Linear: hs.int2}):
            model(x).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) == 3
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("make", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_computed_weights_are_refused(make: Any) -> None:
    """Rounding the parts of which a weight is made is not quantizing the weight."""
    model = nn.Sequential(make(nn.Linear(4, 4)))
    for match in ("0", "*", nn.Linear):
        with (
            pytest.raises(hs.ArgumentError, match="computed from other parameters"),
            hs.simulate(model, {match: hs.int8}),
        ):
            pass


def test_a_compiled_model_is_refused() -> None:
    """Compiled code would not see the simulation; the error says what to give."""
    model = torch.compile(nn.Sequential(nn.Linear(4, 4)), backend="eager")
    with (
        pytest.raises(hs.ArgumentError, match="the model is compiled"),
        hs.simulate(model, {nn.Linear: hs.int8}),
    ):
        pass


def test_a_wrong_word_in_a_rule_is_named() -> None:
    """A misspelt slot does not pass as Python's error."""
    with pytest.raises(hs.ArgumentError, match="the rule for '0' has 'weights': allowed are input"):
        find_layers(nn.Sequential(nn.Linear(2, 2)), {"0": {"weights": hs.int8}})


def test_observers_in_a_simulation_know_their_layer() -> None:
    """An error of an observer inside a simulated copy names the layer."""
    rule = hs.Rule("0", output=hs.uint8, observer=hs.MovingAverageObserver)
    copied = hs.simulated(nn.Sequential(nn.Linear(2, 2)), [rule])
    with pytest.raises(hs.ArgumentError, match="layer '0'"):
        copied[0].output_quantizer.observer.qparams()
