"""A model whose Python looks at values: its parts run in integers, and the reason is named."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import halfstep as hs


class Halting(nn.Module):
    """Repeats a cell until it is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.score = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 32) to (N, 32)."""
        for _ in range(8):
            x = x + self.cell(x)
            if self.score(x).mean() > 0:
                break
        return x


torch.manual_seed(0)
model, x = Halting().eval(), torch.randn(64, 32)
result = hs.ptq.quantize(model, x)
for row in result.coverage:
    print(row.layer or "(the model)", row.op, row.runs, row.why)
# -> (the model) (Python) float its Python code depends on the values of a tensor: `if self.score(x)
# -> cell.0 linear int8
# -> cell.1 relu int8
# -> cell.2 linear int8
# -> score linear int8
print(result.summary.sqnr > 30)  # -> True

# The Python between the parts is in no file, so the model itself comes with it.
path = Path(tempfile.mkdtemp()) / "halting.halfstep"
hs.save(result, path)
try:
    hs.load(path)
except hs.ArgumentError as error:
    print(error)  # -> give the float model as model=
loaded = hs.load(path, model=Halting())
print(torch.equal(loaded(x), result.model(x)))  # -> True
