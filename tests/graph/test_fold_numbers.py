"""Folding under any numbers, and of a real model."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from halfstep.graph.capture import capture
from halfstep.graph.fold import fold
from tests.graph.folding import (
    assert_close,
    folded_model,
    norms,
)
from tests.graph.passes import exported, flat, prepared
from tests.graph.zoo import rand
from tests.strategies import QUICK

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@st.composite
def normed(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """A layer and a batch norm with hard numbers, and an input."""
    dimensions, groups = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    inputs, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    bias = draw(st.booleans())
    if dimensions == 0:
        layer: nn.Module = nn.Linear(inputs, outputs, bias=bias)
    else:
        plain = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        turned = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        kind = (turned if draw(st.booleans()) else plain)[dimensions - 1]
        layer = kind(inputs, outputs, draw(st.integers(1, 3)), groups=groups, bias=bias)
    norm = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dimensions](outputs)
    numbers = st.lists(
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 7.0]), min_size=outputs, max_size=outputs
    )
    tiny = st.lists(
        st.sampled_from([0.0, 1e-12, 1e-6, 0.01, 1.0, 30.0]), min_size=outputs, max_size=outputs
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(rand(*parameter.shape))
        norm.weight.copy_(torch.tensor(draw(numbers)))
        norm.bias.copy_(torch.tensor(draw(numbers)))
        norm.running_mean.copy_(torch.tensor(draw(numbers)))
        norm.running_var.copy_(torch.tensor(draw(tiny)))
    norm.eps = draw(st.sampled_from([1e-5, 1e-3, 1e-8]))
    size = (4, inputs, 5, 4, 3)[: dimensions + 2]
    return nn.Sequential(layer, norm).eval(), rand(*size)


@pytest.mark.slow
@given(normed())
@settings(QUICK, max_examples=40)
def test_any_numbers(case: tuple[nn.Module, Tensor]) -> None:
    """Factors of any sign and 0, tiny variances, groups, transposed or not: within rounding."""
    model, x = case
    program = exported(model, x)
    folded = fold(program, model)
    assert not folded.reasons
    assert not norms(folded.program)
    twin = folded_model(model, folded)
    conv, norm = model.double()
    with torch.no_grad():
        found, expected = twin(x), model(x.double())
        # In units of what is added up: factors times sums of products.
        factor = (norm.weight / (norm.running_var + norm.eps).sqrt()).abs().max()
        largest = x.abs().max() * conv.weight.abs().sum() + norm.running_mean.abs().max() + 1
        limit = 1e-5 * (factor * largest + norm.bias.abs().max())
        assert (found - expected).abs().max() <= limit


@pytest.mark.models
@pytest.mark.slow
def test_efficientnet() -> None:
    """All 49 batch norms of EfficientNet-Lite0 are folded, and its answers stay."""
    model = pytest.importorskip("examples.real.effnet_lite0").load_model()
    (program,) = capture(model, (rand(1, 3, 224, 224),)).programs[""]
    folded = fold(prepared(program, model), model)
    assert len(folded.layers) == len(folded.weights) == 49
    assert not norms(folded.program)
    x = rand(1, 3, 224, 224)
    with torch.inference_mode():
        (expected,), (after,) = flat(model(x)), flat(folded_model(model, folded)(x))
    assert_close(after, expected, 1e-4)
    assert torch.equal(after.argsort()[:, -5:], expected.argsort()[:, -5:])
