"""A quantized model on every engine: the same class and tensors, measured, and failures told."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep import engines
from halfstep.errors import ArgumentError, HalfstepWarning
from halfstep.flows import ptq
from halfstep.flows.deploy import bench, deploy, on_engine
from halfstep.flows.result import Result
from halfstep.flows.timing import FLOAT

room = sys.modules[deploy.__module__]


class Net(nn.Module):
    """A network with a method beside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor, *, scale: Any = None) -> Tensor:
        """(N, 1, H, W) to (N, 3)."""
        y = self.fc(torch.relu(self.conv(x)).mean((2, 3)))
        return y if scale is None else y * scale

    def best(self, x: Tensor) -> Tensor:
        """A method beside forward."""
        return self(x).argmax(1)


X = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def result() -> Result:
    """A quantized network."""
    torch.manual_seed(0)
    return ptq.quantize(Net(), X, progress=False)


@pytest.mark.parametrize("name", engines.installed())
def test_every_engine_runs_the_same_model(result: Result, name: str) -> None:
    """An object of the class, with its methods and tensors, and nearly the same results."""
    model = deploy(result, engine=name, example=X)
    assert type(model) is Net
    assert model.conv.weight is result.model.conv.weight
    expected = result.model(X)
    torch.testing.assert_close(model(X), expected, rtol=0, atol=0.05 * float(expected.abs().max()))
    assert model.best(X).shape == (16,)


def test_the_model_itself_stays_on_its_engine(result: Result) -> None:
    """Another engine means another object."""
    before = vars(result.model)["forward"].engine
    twin = on_engine(result.model, "reference")
    assert vars(result.model)["forward"].engine is before
    assert vars(twin)["forward"].engine.name == "reference"
    assert torch.equal(twin(X), result.model(X))


def test_auto_takes_the_fastest(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one with the lowest median time."""
    times = {"torch": 3.0, "reference": 2.0}
    monkeypatch.setattr(room, "installed", lambda: tuple(times))
    monkeypatch.setattr(room, "medians", lambda calls: {name: times[name] for name in calls})
    assert vars(deploy(result, example=X))["forward"].engine.name == "reference"


def test_an_engine_that_fails_is_told(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning from deploy, a row in the table."""
    real = room.by_name

    def failing(name: str) -> Any:
        if name == "openvino":
            raise RuntimeError("no such kernel\nat line 3")
        return real(name)

    monkeypatch.setattr(room, "installed", lambda: ("torch", "openvino"))
    monkeypatch.setattr(room, "by_name", failing)
    with pytest.warns(HalfstepWarning, match=r"openvino does not run it: no such kernel$"):
        assert vars(deploy(result, example=X))["forward"].engine.name == "torch"
    table = bench(result, X)
    assert table.failed == {"openvino": "no such kernel"}
    assert "no such kernel" in str(table)


def test_the_table_compares_with_the_float_model(result: Result) -> None:
    """Times of all, and the SQNR of each engine against the float model."""
    torch.manual_seed(0)
    table = bench(result, {"x": X}, engines=["torch", "reference"], float_model=Net().eval())
    assert {row.engine for row in table} == {FLOAT, "torch", "reference"}
    assert table.fastest != FLOAT
    assert table.against == FLOAT
    assert table["torch"].sqnr == table["reference"].sqnr
    assert (table["torch"].sqnr or 0) > 20
    assert table.to_dict()["engines"][0]["ms"] > 0


def test_what_cannot_be_deployed_is_refused(result: Result) -> None:
    """A float model, an unknown engine, no example, an example that does not fit."""
    with pytest.raises(ArgumentError, match="is not quantized"):
        deploy(Net(), engine="torch")
    with pytest.raises(ArgumentError, match="'fpga' is not an engine"):
        deploy(result, engine="fpga")
    with pytest.raises(ArgumentError, match="give example="):
        deploy(result)
    with pytest.raises(ArgumentError, match="no engine runs this model here: torch: "):
        bench(result, torch.randn(2, 3, 8, 8), engines=["torch"])
