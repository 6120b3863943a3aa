"""Every kind of model, quantized in every way: of its class, running, close to its float form."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from halfstep.flows import ptq
from halfstep.flows.compare import Noise, floats
from halfstep.flows.result import Result
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only
from tests.graph.zoo import Case
from tests.graph.zoo_cases import PARTS, WHOLE, made

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

CASES = {**WHOLE, **{name: case for name, (case, _) in PARTS.items()}}
RECIPES = {"static": static_int8, "dynamic": dynamic_int8, "weight_only": weight_only}
# In dB; what is measured is at least 38 for all but a few models of very few numbers.
CLOSE = 28


@pytest.fixture(autouse=True)
def _steps_of_attention() -> Iterator[None]:
    """Torch's fused attention rounds differently, and is no part of a program."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def call(model: nn.Module, batch: Any) -> Any:
    """Run a model on one call of a case."""
    args, kwargs = batch
    return model(*args, **kwargs)


def assert_close(model: nn.Module, result: Result, case: Case) -> None:
    """The result's model is of the class, and returns nearly what the float one does."""
    assert type(result.model) is type(model)
    noise = Noise()
    with torch.no_grad():
        for batch in case.arguments():
            noise.add(floats(call(model, batch)), floats(call(result.model, batch)))
    assert noise.batches == len(case.calls)
    assert noise.sqnr is None or noise.sqnr > CLOSE


@pytest.mark.parametrize(
    "way",
    [
        "static",
        pytest.param("dynamic", marks=pytest.mark.slow),
        pytest.param("weight_only", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_with_data(name: str, way: str) -> None:
    """Traced and calibrated: close to float on every call, equal to the reference, unchanged."""
    case = CASES[name]
    model = made(case)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = ptq.quantize(model, case.arguments(), RECIPES[way](), forward=call)
    assert_close(model, result, case)
    (equality,) = result.summary.equality.values()
    assert equality.startswith(("equal to the reference", "no integers"))
    assert "forward" not in vars(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert list(result.model.state_dict()) == list(before)
    assert len(result.coverage) > 0


@pytest.mark.parametrize("way", ["dynamic", "weight_only"])
@pytest.mark.parametrize("name", CASES)
def test_without_data(name: str, way: str) -> None:
    """Layer by layer: the same, for every call, of whatever rank."""
    case = CASES[name]
    model = made(case)
    result = ptq.quantize(model, None, RECIPES[way]())
    assert_close(model, result, case)
    assert list(result.model.state_dict()) == list(model.state_dict())
    assert result.summary.sqnr is None
