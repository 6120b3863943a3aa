"""Activations of any width run in integers on the torch engine, equal to the reference."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs

WEIGHT = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
TRANSPOSED = WEIGHT.with_granularity(hs.PerChannel(1))


class Net(nn.Module):
    """One operator of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.last = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Images to five numbers."""
        y = F.relu(self.norm(self.first(x)))
        y = F.max_pool2d(F.silu(self.up(y + self.deep(y))), 2)
        y = torch.cat([y, y * 0.5], 1)[:, :4]
        y = y * torch.sigmoid(y.mean((2, 3), keepdim=True))
        return self.last(F.adaptive_avg_pool2d(y, 1).flatten(1))


@pytest.mark.parametrize(
    ("dtype", "sqnr", "runs"),
    [
        (hs.int16, 55, "int16"),
        (hs.uint16, 55, "int16"),
        (hs.int8, 45, "int8"),
        (hs.uint8.within(3, 200), 45, "int8"),
        (hs.uint4, 25, "int4"),
        (hs.int4, 25, "int4"),
    ],
    ids=str,
)
def test_activations_of_any_width(dtype: hs.QDType, sqnr: float, runs: str) -> None:
    """All operators run on codes of the format, as the coverage says, and as the formulas do."""
    torch.manual_seed(0)
    edge, x = hs.QSpec(dtype), torch.randn(4, 3, 12, 12)
    rules = [
        hs.Rule("up", weight=TRANSPOSED, input=edge, output=edge),
        hs.Rule("*", weight=WEIGHT, input=edge, output=edge),
    ]
    result = hs.ptq.quantize(Net().eval(), x, rules, check="all")
    assert {row.runs.split(",")[0] for row in result.coverage} == {runs, "folded"}
    assert result.summary.equality["torch"].startswith("equal to the reference in all")
    assert result.summary.sqnr is not None
    assert result.summary.sqnr > sqnr


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_that_shows_no_integers_is_compared_by_its_outputs(engine: str) -> None:
    """The summary says how many of them differ from the reference, and by how many steps."""
    pytest.importorskip(engine)
    torch.manual_seed(0)
    x = torch.randn(4, 3, 12, 12)
    found = hs.ptq.quantize(Net().eval(), x, engine=engine).summary.equality[engine]
    assert "reference" in found
    assert "elements" in found
    assert "no integers" not in found


def test_a_layer_without_outputs_runs() -> None:
    """Nothing is computed, and nothing fails."""
    with pytest.warns(UserWarning, match="zero-element"):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 0))
    x = torch.randn(4, 8)
    assert hs.ptq.quantize(model, x).model(x).shape == (4, 0)
