"""The real models, as loaded by the examples, score what their makers' weights score."""

import pytest
import torch

from examples.real import effnet_lite0, g2p, minilm

pytestmark = pytest.mark.models


def test_efficientnet_names_eighteen_of_twenty_images() -> None:
    """Top-1 18 and top-5 19 of the images of foolbox, in float32."""
    model = effnet_lite0.load_model()
    assert effnet_lite0.hits(model) == 18
    assert effnet_lite0.hits(model, among=5) == 19


def test_photographs_are_as_the_network_wants_them() -> None:
    """Sixteen different photographs with pixels in [-127 / 128, 1], none of them labelled."""
    photographs = effnet_lite0.photographs()
    assert photographs.shape == (16, 3, 224, 224)
    assert photographs.min() >= -127 / 128
    assert photographs.max() <= 1
    assert photographs.flatten(1).unique(dim=0).shape[0] == 16
    labelled, classes = effnet_lite0.labelled_images()
    assert labelled.shape == (20, 3, 224, 224)
    assert classes.shape == (20,)


def test_minilm_agrees_with_people() -> None:
    """Lee Pearson 0.656, SimLex Spearman 0.446, WordSim Spearman 0.729, in float32."""
    model = minilm.load_model()
    assert minilm.lee_pearson(model) == pytest.approx(0.656, abs=5e-4)
    assert minilm.spearman(model, "simlex999.txt") == pytest.approx(0.446, abs=5e-4)
    assert minilm.spearman(model, "wordsim353.tsv") == pytest.approx(0.729, abs=5e-4)


def test_minilm_encodes_texts_in_the_order_given() -> None:
    """Sorting by length and padding change no vector by more than rounding, and no place."""
    model = minilm.load_model()
    texts = ["a much longer sentence about the weather of tomorrow", "rain", "sun and wind"]
    together = model.encode(texts, batch=2)
    alone = [model.encode([text])[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert (one - other).abs().max() < 1e-5


def test_equal_values_share_their_rank() -> None:
    """Ranks start at one, ties take the mean: what Spearman's correlation asks for."""
    values = torch.tensor([3.0, 1.0, 3.0, 2.0])
    assert minilm.ranks(values).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_pronouncer_says_words_as_the_dictionary() -> None:
    """68.55 % of 2,000 words with every phoneme right, in float32."""
    words = g2p.load_words()
    assert len(words) == 2000
    assert g2p.accuracy(g2p.load_model(), words) == pytest.approx(0.6855)


def test_pronouncer_does_not_depend_on_the_other_words() -> None:
    """A batch ends with its longest word; the others have ended before and stay as they are."""
    model = g2p.load_model()
    words = ["speech", "strong", "a", "quick"]
    assert model.pronounce(words) == [model.pronounce([word])[0] for word in words]
