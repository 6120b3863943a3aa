"""EfficientNet-Lite0 with its real weights."""

import pytest
import torch

from halfstep.graph.capture import capture
from halfstep.graph.product import product
from tests.graph.zoo import rand


@pytest.mark.models
@pytest.mark.slow
def test_efficientnet_takes_any_batch_height_and_width() -> None:
    """From one image, a program that gives the model's bits on every other size."""
    model = pytest.importorskip("examples.real.effnet_lite0").load_model()
    captured = capture(model, (rand(1, 3, 224, 224),))
    assert list(captured.programs) == [""]
    (program,) = captured.programs[""]
    convolutions = [step for step in program.steps if step.op == "aten.conv2d.default"]
    assert len(convolutions) == 49
    assert convolutions[0].source == "_conv_stem"
    twin = product(model, captured)
    with torch.inference_mode():
        for size in ((1, 224, 224), (2, 192, 256), (3, 97, 131)):
            x = rand(size[0], 3, *size[1:])
            assert torch.equal(twin(x), model(x))
