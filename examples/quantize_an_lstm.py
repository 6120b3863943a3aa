"""Quantize an LSTM without data: no result depends on what else is in the batch."""

import torch
from torch import nn

import halfstep as hs


class Tagger(nn.Module):
    """Words to tags."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 12)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(N, L) to (N, L, 12)."""
        return self.head(self.lstm(self.embedding(words))[0])

    def tags(self, words: torch.Tensor) -> torch.Tensor:
        """The most likely tag of every word."""
        return self(words).argmax(dim=-1)


torch.manual_seed(0)
model = Tagger().eval()
words = torch.randint(1000, (8, 20))
result = hs.ptq.quantize(model)

for row in result.coverage:
    print(row.layer, row.runs)
# -> embedding int8 weights
# -> lstm dynamic int8
# -> head dynamic int8

with torch.no_grad():
    together, alone = result.model(words), result.model(words[:1])
    print(torch.equal(together[:1], alone))  # -> True
    agreement = (result.model.tags(words) == model.tags(words)).double().mean()
print(f"same tag: {agreement:.0%}")  # -> same tag:
print(f"{result.summary.bytes_after / result.summary.bytes_before:.2f} of the bytes")  # -> 0.27
