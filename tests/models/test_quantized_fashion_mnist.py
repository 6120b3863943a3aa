"""A network that is trained here and then runs in integers."""

import os
from pathlib import Path

import pytest

import halfstep as hs
from examples.real import fashion_mnist

FOLDER = Path(os.environ.get("FASHION_MNIST", fashion_mnist.FOLDER))
pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(),
        reason="no data: install dataset-fashion-mnist, or name its folder in FASHION_MNIST",
    ),
]


def test_integers_are_as_right_as_floats() -> None:
    """Within half a point of the float network on 10,000 images, calibrated on 256 others."""
    images, classes = fashion_mnist.load_images("train", FOLDER)
    model = fashion_mnist.train(images[:20_000], classes[:20_000])
    result = hs.ptq.quantize(model, list(images[-256:].split(64)), progress=False)
    unseen = fashion_mnist.load_images("t10k", FOLDER)
    before = fashion_mnist.accuracy(model, *unseen)
    assert before > 0.87
    assert fashion_mnist.accuracy(result.model, *unseen) == pytest.approx(before, abs=0.005)
