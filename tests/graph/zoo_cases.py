"""The zoo's cases by name: those that are captured as a whole, and those in parts."""

from typing import Any

import torch
from torch import nn

from tests.graph import zoo
from tests.graph.zoo import Case, Formula, images, rand, tokens

WHOLE: dict[str, Case] = {
    "shuffle": Case(lambda: Formula(zoo.shuffle), zoo.ROWS),
    "attend": Case(lambda: Formula(zoo.attend, 8), zoo.TEXTS),
    "several_inputs": Case(
        lambda: Formula(lambda x, y: (x @ y.t(), {"sum": x.sum(0)})),
        [(rand(3, 6), rand(4, 6)), (rand(1, 6), rand(2, 6)), (rand(5, 6), rand(9, 6))],
    ),
    "same_batch": Case(
        lambda: Formula(lambda x, y: x + y),
        [(rand(3, 6), rand(3, 6)), (rand(1, 6), rand(1, 6)), (rand(5, 6), rand(5, 6))],
    ),
    "block": Case(zoo.Block, images((2, 3, 8, 8), (1, 3, 8, 8), (3, 3, 10, 6))),
    "tied": Case(zoo.Tied, [(tokens(2, 5),), (tokens(1, 5),), (tokens(3, 1),), (tokens(4, 9),)]),
    "outputs": Case(
        zoo.Outputs,
        [(rand(n, 6), (rand(n, 6), rand(6))) for n in (2, 1, 5)],
        [{"mask": rand(n, 6) > 0} for n in (2, 1, 5)],
    ),
    "quiet": Case(zoo.Quiet, zoo.ROWS),
    "linear": Case(lambda: nn.Linear(6, 3), zoo.ROWS),
    "sequential": Case(
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), zoo.ROWS
    ),
    "batch_of_one": Case(lambda: nn.Linear(6, 3), images((1, 6), (4, 6))),
    "folded_norm": Case(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), zoo.ROWS),
    "mha": Case(lambda: zoo.SelfAttention(8, 2, batch_first=True), zoo.TEXTS),
    "encoder_layer": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), zoo.TEXTS
    ),
    "decoder_layer": Case(
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
        [(rand(2, 5, 8), rand(2, 4, 8)), (rand(1, 7, 8), rand(1, 3, 8))],
    ),
    "encoder": Case(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ),
        zoo.TEXTS,
    ),
    "sdpa": Case(zoo.Attention, zoo.TEXTS),
    "layer_norm": Case(lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)), zoo.TEXTS),
    "embedding_bag": Case(
        lambda: nn.EmbeddingBag(10, 6), [(tokens(3, 4),), (tokens(1, 4),), (tokens(5, 7),)]
    ),
    "conv1d": Case(lambda: nn.Conv1d(4, 6, 3, padding=1), zoo.LINES),
    "conv3d": Case(lambda: nn.Conv3d(4, 6, 3, padding=1), zoo.VOLUMES),
    "transposed1d": Case(lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), zoo.LINES),
    "transposed3d": Case(lambda: nn.ConvTranspose3d(4, 4, 3, groups=2), zoo.VOLUMES),
    "lstm_projected": Case(lambda: nn.LSTM(4, 6, proj_size=3, num_layers=2), zoo.SEQUENCES),
    "lstm_unbatched": Case(lambda: nn.LSTM(4, 6), images((5, 4), (9, 4))),
    "gru_unbatched": Case(lambda: nn.GRU(4, 6, batch_first=True), images((5, 4), (9, 4))),
    "lstm_states": Case(
        lambda: nn.LSTM(4, 6, batch_first=True),
        [(rand(n, t, 4), (rand(1, n, 6), rand(1, n, 6))) for n, t in ((2, 5), (1, 5), (3, 8))],
    ),
    "gru_state": Case(
        lambda: nn.GRU(4, 6), [(rand(t, n, 4), rand(1, n, 6)) for n, t in ((2, 5), (1, 5), (3, 8))]
    ),
    **{name: Case(make, zoo.IMAGES) for name, make in zoo.LAYERS.items()},
    **{
        kind.__name__: Case(lambda kind=kind: nn.Sequential(nn.Linear(6, 6), kind()), zoo.ROWS)
        for kind in zoo.ACTIVATIONS
    },
    **{
        f"{kind.__name__}_{name}": Case(lambda kind=kind, o=options: kind(4, 6, **o), zoo.SEQUENCES)
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for name, options in zoo.RECURRENT.items()
    },
}

# With the modules that are captured.
PARTS: dict[str, tuple[Case, set[str]]] = {
    "branching": (
        Case(zoo.Branching, images((2, 3, 8, 8), (1, 3, 8, 8), (3, 3, 10, 6))),
        {"body", "head"},
    ),
    "greedy": (
        Case(zoo.Greedy, [(tokens(1, 5),), (tokens(1, 9),)]),
        {"embedding", "encoder", "cell", "out"},
    ),
}


def made(case: Case, seed: int = 0) -> nn.Module:
    """The model of a case, in eval mode, always with the same weights."""
    torch.manual_seed(seed)
    model: Any = case.make()
    return model.eval()
