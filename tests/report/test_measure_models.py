"""Real models, measured on real data."""

import pytest
import torch

import halfstep as hs
from examples.real import effnet_lite0, minilm
from halfstep.report.records import Layer
from tests.engines.twice import with_threads
from tests.report.measured import measuring

pytestmark = [pytest.mark.models, pytest.mark.slow]


def checked(layers: tuple[Layer, ...]) -> list[Layer]:
    """The layers that were quantized, each with a split that is its error."""
    found = [layer for layer in layers if layer.local is not None]
    for layer in found:
        assert layer.split.total == pytest.approx(layer.local.noise, rel=1e-3)
    return found


def test_efficientnet() -> None:
    """Every convolution is a layer, with a split of its error and its codes."""
    x = effnet_lite0.photographs()[:4]
    result = hs.ptq.quantize(effnet_lite0.load_model(), x, progress=False, check="none")
    work = measuring(result)
    with torch.no_grad():
        y, found = with_threads(1, lambda: work.run(lambda model: model(x)))
    layers = work.layers()
    convolutions = [layer for layer in checked(layers) if layer.op == "conv2d"]
    assert len(convolutions) == 49
    assert all(layer.runs == "int8" and layer.output is not None for layer in convolutions)
    assert layers[-1].accumulated.noise == pytest.approx(float((y - found).pow(2).sum()), rel=1e-4)
    assert sum(layer.after for layer in layers) < 0.3 * sum(layer.before for layer in layers)


@pytest.mark.parametrize(
    "recipe",
    [hs.recipes.static_int8(), hs.recipes.dynamic_int8(), hs.recipes.weight_only(hs.int4, 32)],
    ids=["static", "dynamic", "int4"],
)
def test_minilm(recipe: hs.Recipe) -> None:
    """Every linear layer, with the channels of its tokens along the last dimension."""
    model = minilm.load_model()
    tokens = model.tokens(minilm.background()[:2])
    is_static = recipe.name == "static_int8"
    result = hs.ptq.quantize(
        model, [tokens] if is_static else None, recipe, progress=False, check="none"
    )
    work = measuring(result)
    with torch.no_grad():
        work.run(lambda model: model(*tokens))
    linear = [layer for layer in checked(work.layers()) if layer.op == "linear"]
    assert len(linear) == 36
    assert all(len(each.channel_low) in (384, 1536) for layer in linear for each in layer.inputs)
    assert all(0 < layer.accumulated.sqnr < 60 for layer in linear)
