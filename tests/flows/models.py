"""Small networks with the habits of real ones."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Small(nn.Module):
    """A convolution, a reused ReLU, tied linear weights and an attention layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc1 = nn.Linear(8, 8, bias=False)
        self.fc2 = nn.Linear(8, 8, bias=False)
        self.fc2.weight = self.fc1.weight
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 8)."""
        y = self.relu(self.conv(x)).flatten(2).transpose(1, 2)
        y, _ = self.attention(y, y, y)
        return self.fc2(self.relu(self.fc1(y.mean(1))))

    def encode(self, x: Tensor) -> Tensor:
        """A method beside forward."""
        return self.relu(self.conv(x))


class Recurrent(nn.Module):
    """An embedding and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(N, T) tokens to outputs and a dict of states."""
        y, (h, c) = self.lstm(self.embedding(tokens))
        return y, {"h": h, "c": c}


def by_hand(weight: Tensor, levels: int = 15) -> Tensor:
    """Symmetric per-tensor rounding to ``levels`` codes, written independently."""
    step = torch.maximum(-weight.min() / ((levels + 1) // 2), weight.max() / (levels // 2))
    return F.hardtanh((weight / step).round(), -(levels + 1) // 2, levels // 2) * step


def snapshot(model: nn.Module) -> dict[str, Any]:
    """All that must be the same afterwards."""
    return {
        "types": {name: type(module) for name, module in model.named_modules()},
        "keys": list(model.state_dict()),
        "values": {name: value.clone() for name, value in model.state_dict().items()},
        "identity": [id(value) for value in model.parameters()],
        "hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), len(m._forward_hooks_always_called))
            for m in model.modules()
        ],
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Two snapshots of one model are equal in every bit."""
    values, others = before.pop("values"), after.pop("values")
    assert before == after
    assert all(torch.equal(values[name], others[name]) for name in values)
