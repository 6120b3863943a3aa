"""A result by other rules, without tracing it anew: what quantizing anew makes of it."""

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.flows import ptq
from halfstep.flows.data import Data
from halfstep.flows.keepable import keepable
from halfstep.flows.search import requantized
from tests.flows.small import X, mlp
from tests.graph.zoo import rand

ROWS = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
IMAGES = rand(16, 3, 8, 8)


def test_functions_of_a_module_are_kept_without_its_layers() -> None:
    """Where layers lie inside a module that adds by itself, a glob takes the sum alone."""

    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv(x)

    torch.manual_seed(0)
    model = nn.Sequential(Shortcut(), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 4, 1))
    result = ptq.quantize(model, IMAGES)
    assert list(keepable(result.preparation.parts)) == ["0.conv", "[0]", "1", "2"]
    data = Data([IMAGES])
    data.run_all(model)
    found = requantized(result, [hs.Rule("[0]", keep_float=True)], data).coverage
    assert {row.layer: row.runs for row in found} == {
        "0.conv": "int8",
        "0": "float",
        "1": "int8",
        "2": "int8",
    }


def test_other_rules_for_a_result() -> None:
    """The model is that of quantizing anew; new ranges are found on data, or asked for."""
    model = nn.Sequential(
        nn.Linear(6, 8), nn.Flatten(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)
    )
    result = ptq.quantize(model, X)
    rules = [hs.Rule("0", keep_float=True)]
    data = Data([X])
    data.run_all(model)
    found = requantized(result, rules, data)
    expected = ptq.quantize(model, X, hs.recipes.static_int8().with_rules(*rules))
    assert torch.equal(found.model(X), expected.model(X))
    assert [row.runs for row in found.coverage] == [row.runs for row in expected.coverage]
    assert found.recalibrate(X).recipe == found.recipe
    wide = [hs.Rule("2", weight=ROWS, input=hs.uint16, output=hs.uint16)]
    with pytest.raises(hs.ArgumentError, match="is not known, and there is no data to find it on"):
        requantized(result, wide)
    with pytest.raises(hs.ArgumentError, match="this result has no float model"):
        requantized(ptq.quantize(mlp(), X, inplace=True), rules)
