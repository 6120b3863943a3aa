"""What remedies claim, against plain rounding, on real networks with real data."""

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from examples.real import effnet_lite0, minilm

pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    # Plain rounding to few bits does collapse: that is what is compared with.
    pytest.mark.filterwarnings("ignore:the quantized model is at"),
]

EQUALIZE, BIAS, NORMS = (
    hs.remedies.Equalize(),
    hs.remedies.CorrectBias(),
    hs.remedies.ReestimateBatchNorm(),
)
BYTES = {"input": hs.uint8, "output": hs.uint8}
ONE_SCALE = hs.Rule("*", weight=hs.QSpec(hs.int8, symmetric=True), **BYTES)
FOUR_BITS = hs.Rule("*", weight=hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True), **BYTES)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """EfficientNet-Lite0 in float."""
    return effnet_lite0.load_model()


@pytest.fixture(scope="module")
def images() -> Tensor:
    """The twenty labelled images."""
    return effnet_lite0.labelled_images()[0]


def logits(model: nn.Module, images: Tensor) -> Tensor:
    """What a model answers."""
    with torch.inference_mode():
        return model(images)


def sqnr(network: nn.Module, images: Tensor, recipe: hs.Recipe) -> tuple[float, int]:
    """The SQNR of the logits in dB and how many answers are those of the float network.

    Calibrated on photographs that nobody labelled.
    """
    photographs = list(effnet_lite0.photographs().split(8))
    result = hs.ptq.quantize(network, photographs, recipe, progress=False, check="none")
    expected, given = logits(network, images), logits(result.model, images)
    ratio = expected.pow(2).sum() / (expected - given).pow(2).sum()
    return float(10 * ratio.log10()), int((expected.argmax(1) == given.argmax(1)).sum())


def recipe(*rules: hs.Rule) -> hs.Recipe:
    """Static int8, after these rules."""
    return hs.recipes.static_int8().with_rules(*rules)


def test_bias_correction_brings_two_decibels(network: nn.Module, images: Tensor) -> None:
    """Static int8 at least 2 dB above plain min/max: measured 18.8 and 21.9 dB."""
    plain, _ = sqnr(network, images, recipe())
    better, _ = sqnr(network, images, recipe().with_remedies(BIAS))
    assert better >= plain + 2


def test_one_scale_for_each_weight(network: nn.Module, images: Tensor) -> None:
    """Each remedy by a clear margin, both together most.

    Measured: plain 7.0, bias correction 11.6, equalization 13.1, both 18.0 dB.
    """
    plain, _ = sqnr(network, images, recipe(ONE_SCALE))
    biased, _ = sqnr(network, images, recipe(ONE_SCALE).with_remedies(BIAS))
    equal, _ = sqnr(network, images, recipe(ONE_SCALE).with_remedies(EQUALIZE))
    both, _ = sqnr(network, images, recipe(ONE_SCALE).with_remedies(EQUALIZE, BIAS))
    assert biased >= plain + 3
    assert equal >= plain + 4
    assert both >= plain + 9


def test_equalizing_leaves_the_float_function(network: nn.Module, images: Tensor) -> None:
    """With a ReLU6 behind almost every layer, the logits stay to float rounding."""
    asked = recipe().with_remedies(EQUALIZE)
    prepared = hs.ptq.prepare(network, images[:2], asked)
    expected, given = logits(network, images[:4]), logits(prepared, images[:4])
    assert (expected - given).abs().max() <= 1e-4 * expected.abs().max()


def test_weights_in_four_bits(network: nn.Module, images: Tensor) -> None:
    """Re-estimating brings answers back: measured 3 of 20 as in float, and 16; -3.4 and 3.0 dB."""
    plain, hits = sqnr(network, images, recipe(FOUR_BITS))
    better, more = sqnr(network, images, recipe(FOUR_BITS).with_remedies(NORMS))
    assert better >= plain + 4
    assert more >= hits + 8


def test_smoothing_a_sentence_encoder() -> None:
    """Static int8 of MiniLM: cosine at least 0.994 smoothed, 0.997 with bias correction.

    Plain it is 0.9929. Measured: Smooth() 0.9948, all of it 0.9980.
    """
    model = minilm.load_model()
    texts = minilm.background()[:40]
    batches = [model.tokens(texts[start : start + 8]) for start in range(0, len(texts), 8)]
    lee, _ = minilm.lee()
    expected = model.encode(lee)

    def cosine(*remedies: hs.spec.remedies.Remedy) -> float:
        asked = hs.recipes.static_int8().with_remedies(*remedies)
        result = hs.ptq.quantize(model, batches, asked, progress=False, check="none")
        return float((expected * result.model.encode(lee)).sum(dim=-1).mean())

    assert cosine(hs.remedies.Smooth()) >= 0.994
    assert cosine(hs.remedies.Smooth(0.7, elsewhere=0.7), BIAS) >= 0.997
