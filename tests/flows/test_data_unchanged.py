"""The user's data stay as they are, whatever the model does to its input."""

import torch
from torch import nn

import halfstep as hs


class Doubling(nn.Module):
    """Changes its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of twice the input."""
        return self.fc(x.mul_(2))


def test_a_model_that_changes_its_input_is_calibrated_on_what_was_given() -> None:
    """Every run has a copy, so that quantizing and explaining see the same data."""
    x = torch.randn(16, 8)
    before = x.clone()
    model = Doubling().eval()
    result = hs.ptq.quantize(model, x)
    assert torch.equal(x, before)
    found = hs.explain(model, result, x, timed=False)
    assert torch.equal(x, before)
    assert found.output.sqnr > 30
