"""Every kind of model, as an ONNX file in ONNX Runtime."""

from collections.abc import Iterator

import pytest
import torch

import halfstep as hs
from halfstep.errors import ArgumentError
from halfstep.graph.quantized import Execution
from halfstep.spec import recipes
from tests.engines.calibrated import calibrated, flat, in_float
from tests.engines.running import onnx_model, reference, run_onnx
from tests.graph.zoo_cases import WHOLE, made

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

# ONNX's layer has no projection.
UNSUPPORTED = {"lstm_projected"}
FLOAT_TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _steps_of_attention() -> Iterator[None]:
    """Torch's fused attention rounds differently, and is no part of a program."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in UNSUPPORTED])
@pytest.mark.parametrize("opset", [13, 21])
def test_float_models_compute_the_same(name: str, opset: int) -> None:
    """On the example's size and on every other, up to the rounding of float32."""
    case = WHOLE[name]
    model = made(case)
    calls = case.arguments()
    plain = in_float(model, *calls[0])
    written = onnx_model(plain.quantized, plain.module, opset)
    for args, kwargs in calls:
        with torch.no_grad():
            expected = flat(
                model(*(a.clone() if hasattr(a, "clone") else a for a in args), **kwargs)
            )
        found = run_onnx(written, plain.quantized, plain.given(args, kwargs))
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            torch.testing.assert_close(one, other, rtol=1e-5, atol=FLOAT_TOLERANCE)


RECIPES = {
    "static": recipes.static_int8(),
    "dynamic": recipes.dynamic_int8(),
    "int8 weights": recipes.weight_only(hs.int8),
    "int4 weights": recipes.weight_only(hs.int4),
    "int4 groups": recipes.weight_only(hs.int4, group_size=2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n, c in WHOLE.items() if n not in UNSUPPORTED and not any(c.kwargs)]
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_quantized_models_compute_what_the_formulas_say(name: str, recipe: str) -> None:
    """In every recipe, up to the rounding of float32: not one integer is another."""
    case = WHOLE[name]
    calls = [args for args, _ in case.arguments()]
    chosen = calibrated(made(case), *calls, rules=RECIPES[recipe])
    if all(d.execution is Execution.FLOAT for d in chosen.quantized.decisions.values()):
        pytest.skip("nothing of it is quantized")
    written = onnx_model(chosen.quantized, chosen.module)
    # ONNX's recurrent layers take floats, where ours round the rows of each step.
    recurrent = any("halfstep." in step.op for step in chosen.quantized.program.steps)
    for args in calls:
        given = chosen.given(args)
        expected = flat(reference(chosen.quantized, chosen.module, given))
        found = run_onnx(written, chosen.quantized, given)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-2 if recurrent else 1e-4)


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_what_onnx_lacks_is_named(name: str) -> None:
    """An operator without a form is refused with its layer and a way out."""
    case = WHOLE[name]
    args, kwargs = case.arguments()[0]
    plain = in_float(made(case), args, kwargs)
    with pytest.raises(ArgumentError, match=r"proj_size.*Linear"):
        onnx_model(plain.quantized, plain.module)
