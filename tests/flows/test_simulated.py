"""The permanent form of a simulation: a copy that trains, is copied and saved."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import halfstep as hs
from tests.flows.models import Small, assert_same, snapshot

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
INT4 = hs.QSpec(hs.int4, symmetric=True)


def test_an_interrupted_copy_runs_again() -> None:
    """Ctrl-C in the middle of a call of a permanent copy leaves nothing wrong in the next."""
    copied = hs.simulated(Small(), {"fc1": INT4}).eval()
    expected = copied(IMAGES)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = copied.fc2.register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        copied(IMAGES)
    handle.remove()
    assert torch.equal(copied(IMAGES), expected)
    assert isinstance(copied.fc1.weight, nn.Parameter)


def test_simulated_is_a_copy_that_equals_simulate() -> None:
    """The copy computes what the ``with`` does; the model is not touched."""
    model = Small().eval()
    before, recipe = snapshot(model), {"fc1": INT4, "conv": hs.QSpec(hs.int8, hs.PerChannel(0))}
    copied = hs.simulated(model, recipe)
    with hs.simulate(model, recipe):
        expected = model(IMAGES)
    assert torch.equal(copied(IMAGES), expected)
    assert_same(before, snapshot(model))
    assert isinstance(copied, Small)
    assert list(copied.state_dict()) == list(model.state_dict())


def test_simulated_trains_saves_and_copies() -> None:
    """Gradients reach the parameters; deepcopy, pickle and state_dict keep the behaviour."""
    recipe = [hs.Rule("fc1", weight=INT4, output=hs.uint8, observer=hs.MovingAverageObserver)]
    copied = hs.simulated(Small(), recipe)
    copied(IMAGES).sum().backward()
    assert copied.fc1.weight.grad is not None
    assert "fc1.output_quantizer" in dict(copied.named_modules())
    copied.eval()
    expected = copied(IMAGES)
    stored = io.BytesIO()
    torch.save(copied.state_dict(), stored)
    stored.seek(0)
    other = hs.simulated(Small(), recipe)
    other.load_state_dict(torch.load(stored, weights_only=True))
    for twin in (copy.deepcopy(copied), pickle.loads(pickle.dumps(copied)), other.eval()):
        assert torch.equal(twin(IMAGES), expected)


def test_a_deepcopy_of_a_simulated_copy_is_independent() -> None:
    """Changing the twin's weights does not change the original, and its hooks act on itself."""
    copied = hs.simulated(Small(), {"fc1": INT4}).eval()
    twin = copy.deepcopy(copied)
    expected = copied(IMAGES)
    with torch.no_grad():
        twin.fc1.weight.zero_()
    assert torch.equal(copied(IMAGES), expected)
    assert not torch.equal(twin(IMAGES), expected)
