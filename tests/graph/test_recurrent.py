"""Recurrent layers as operators: torch's own bits, gradients, any length."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.graph import recurrent
from halfstep.graph.capture import capture
from tests.graph.zoo import rand

KINDS = [(nn.LSTM, recurrent.lstm), (nn.GRU, recurrent.gru), (nn.RNN, recurrent.rnn)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"bidirectional": True, "num_layers": 2, "batch_first": True},
    {"bias": False, "num_layers": 2, "dropout": 0.5},
]


def outputs(layer: nn.Module, x: Tensor, *state: Any) -> list[Tensor]:
    """All tensors that a recurrent layer returns, always with the same dropout."""
    torch.manual_seed(0)
    y, after = layer(x, *state)
    return [y, *(after if isinstance(after, tuple) else [after])]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
@pytest.mark.parametrize("training", [False, True])
def test_same_bits_and_gradients(kind: Any, options: dict[str, Any], *, training: bool) -> None:
    """Without gradients every bit; the gradients themselves to the last digits."""
    layer = kind(4, 6, **options).train(training)
    x = rand(5, 3, 4)
    with torch.no_grad():
        expected = outputs(layer, x)
        with recurrent.as_operators(layer):
            found = outputs(layer, x)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    wanted = gradients(layer, x)
    with recurrent.as_operators(layer):
        got = gradients(layer, x)
    for a, b in zip(wanted, got, strict=True):
        torch.testing.assert_close(a, b)


def gradients(layer: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """The gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    loss = sum(y.square().sum() for y in outputs(layer, x))
    return torch.autograd.grad(loss, [x, *layer.parameters()])


@pytest.mark.parametrize(("kind", "op"), KINDS)
def test_operators_obey_torch(kind: Any, op: Any) -> None:
    """Schema, fake implementation and autograd registration are consistent."""
    layer = kind(4, 6, num_layers=2, bidirectional=True)
    weights = [weight.detach().requires_grad_() for weight in layer._flat_weights]
    states = (None,) * (2 if kind is nn.LSTM else 1)
    relu = (False,) if kind is nn.RNN else ()
    arguments = (rand(5, 3, 4), *states, weights, True, 2, True, False, *relu)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(op, arguments, test_utils=tests)


def test_forwards_are_restored_whatever_happens() -> None:
    """An error inside leaves no trace on the layers."""
    layer = nn.Sequential(nn.LSTM(4, 6))
    with pytest.raises(TypeError, match="missing"), recurrent.as_operators(layer):
        layer[0].forward()
    assert "forward" not in vars(layer[0])


class Packed(nn.Module):
    """An LSTM over sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.fc = nn.Linear(6, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(N, T, 4) to (N, T, 2)."""
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.fc(y)


def test_packed_sequences_stay_python_and_say_so() -> None:
    """The layers around are captured."""
    captured = capture(Packed().eval(), (rand(3, 5, 4), torch.tensor([5, 4, 2])))
    assert list(captured.programs) == ["fc"]
    assert "packed sequence" in captured.regions[0].reason
    assert "packed sequence" in captured.regions[1].reason
