"""Layers without data: every way of calling them, what stays Python, and why."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import halfstep as hs
from halfstep.flows import ptq
from halfstep.flows.compare import Noise, floats
from halfstep.spec.recipes import static_int8, weight_only
from tests.graph.zoo import PaddedConv, rand, tokens

pytestmark = [
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even"),
]

FLAT = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
OFFSETS = torch.tensor([0, 3, 8])
WEIGHTS = rand(8)
LAYERS: dict[str, tuple[nn.Module, list[tuple[Any, ...]]]] = {
    "linear": (nn.Linear(6, 4), [(rand(*shape),) for shape in ((6,), (3, 6), (2, 3, 2, 6))]),
    "linear without bias": (nn.Linear(6, 4, bias=False), [(rand(3, 6),)]),
    "conv1d": (nn.Conv1d(4, 6, 3, padding=1), [(rand(2, 4, 9),), (rand(4, 9),)]),
    "conv2d": (
        nn.Conv2d(4, 6, 3, stride=2, dilation=2, groups=2),
        [(rand(2, 4, 9, 8),), (rand(4, 9, 8),)],
    ),
    "conv2d same": (nn.Conv2d(4, 6, 4, padding="same"), [(rand(2, 4, 9, 8),), (rand(4, 9, 8),)]),
    "conv2d circular": (
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"),
        [(rand(2, 4, 9, 8),), (rand(4, 9, 8),)],
    ),
    "conv3d": (nn.Conv3d(4, 6, 2), [(rand(2, 4, 5, 4, 3),), (rand(4, 5, 4, 3),)]),
    "transposed": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2),
        [(rand(2, 4, 5, 6),), (rand(4, 5, 6),)],
    ),
    "transposed with a size": (
        nn.ConvTranspose2d(4, 6, 3, stride=2),
        [(rand(2, 4, 5, 6), [12, 14])],
    ),
    "lstm": (
        nn.LSTM(4, 6, num_layers=2, bidirectional=True),
        [
            (rand(5, 2, 4),),
            (rand(5, 4),),
            (rand(5, 2, 4), (rand(4, 2, 6), rand(4, 2, 6))),
            (rand(5, 4), (rand(4, 6), rand(4, 6))),
        ],
    ),
    "lstm projected": (
        nn.LSTM(4, 6, proj_size=3, batch_first=True),
        [(rand(2, 5, 4),), (rand(2, 5, 4), (rand(1, 2, 3), rand(1, 2, 6)))],
    ),
    "gru": (
        nn.GRU(4, 6, batch_first=True),
        [(rand(2, 5, 4),), (rand(5, 4),), (rand(2, 5, 4), rand(1, 2, 6)), (rand(5, 4), rand(1, 6))],
    ),
    "rnn": (nn.RNN(4, 6, nonlinearity="relu"), [(rand(5, 2, 4),), (rand(5, 2, 4), rand(1, 2, 6))]),
    "embedding": (nn.Embedding(10, 6), [(tokens(3),), (tokens(2, 3, 4).int(),), (tokens(),)]),
    "bag": (
        nn.EmbeddingBag(10, 6),
        [(tokens(3, 4),), (FLAT, OFFSETS), (FLAT.int(), OFFSETS.int())],
    ),
    "bag of sums": (
        nn.EmbeddingBag(10, 6, mode="sum", include_last_offset=True),
        [
            (tokens(3, 4),),
            (FLAT, OFFSETS),
            (FLAT, OFFSETS, WEIGHTS),
            (tokens(2, 4), None, rand(2, 4)),
        ],
    ),
    "attention": (
        nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
        [(rand(5, 2, 8), rand(7, 2, 4), rand(7, 2, 6)), (rand(5, 8), rand(7, 4), rand(7, 6))],
    ),
    "own forward": (PaddedConv(4, 4, 3, stride=2), [(rand(2, 4, 9, 7),)]),
}


@pytest.mark.parametrize("make", [None, weight_only], ids=["dynamic", "weight_only"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_way_of_calling_a_layer(name: str, make: Any) -> None:
    """Batched or not, with states, offsets or sizes, of any rank: close to the float layer."""
    layer, calls = LAYERS[name]
    quantized = ptq.quantize(layer.eval(), None, None if make is None else make()).model
    assert any(isinstance(value, hs.QTensor) for value in quantized.parameters())
    noise = Noise()
    with torch.no_grad():
        for args in calls:
            noise.add(floats(layer(*args)), floats(quantized(*args)))
    assert noise.batches == len(calls)
    assert noise.sqnr is not None
    assert noise.sqnr > 30


class Packed(nn.Module):
    """An LSTM that is called with a packed sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.out = nn.Linear(6, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """The last state of each sequence."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.lstm(packed)[1][0][0])


def test_packed_sequences_run_in_float() -> None:
    """Without data the layer runs its own Python; with data it is listed, and stays in float."""
    model, batch = Packed().eval(), (rand(3, 5, 4), torch.tensor([5, 2, 4]))
    for result in (ptq.quantize(model), ptq.quantize(model, [batch])):
        expected = model(*batch)
        assert (result.model(*batch) - expected).norm() < 0.05 * expected.norm()
    reasons = [row.why for row in result.coverage.of("lstm")]
    assert any("packed sequence" in why for why in reasons)
    assert isinstance(result.model.out.weight, hs.QTensor)
    assert not isinstance(result.model.lstm.weight_ih_l0, hs.QTensor)


class Odd(nn.Linear):
    """A linear layer that takes more than an input."""

    def forward(self, x: Tensor, factor: Tensor) -> Tensor:  # type: ignore[override]  # the point
        """Scaled."""
        return super().forward(x) * factor


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Odd(4, 4), "Odd could not be called with an input made from its attributes: .*factor"),
        (parametrizations.weight_norm(nn.Linear(4, 4)), "its weight is computed from other"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm changes its weight"),
        (nn.LayerNorm(4), "no weights that are kept as integers"),
    ],
)
def test_layers_that_stay_as_they_are(layer: nn.Module, why: str) -> None:
    """Their weight stays float, and the coverage says why."""
    model = nn.Sequential(nn.Linear(4, 4), layer)
    coverage = ptq.quantize(model).coverage
    (row,) = coverage.of("1")
    assert row.runs == "float"
    assert re.search(why, row.why)
    assert coverage.of("0")[0].runs == "dynamic int8"


def test_attention_reads_its_weights_itself() -> None:
    """They are integers, the arithmetic is float, and both is said."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    coverage = ptq.quantize(model).coverage
    rows = coverage.of("self_attn")
    assert [row.layer for row in rows] == ["self_attn", "self_attn.out_proj"]
    assert {row.runs for row in rows} == {"int8 weights"}
    assert {row.why for row in rows} == {"attention reads the weight itself, and computes in float"}
    assert coverage.of("linear1")[0].runs == "dynamic int8"


def test_that_functions_are_not_seen_is_said() -> None:
    """Operators between layers run in float without data."""
    assert "functions between them" in str(ptq.quantize(nn.Linear(4, 4)).coverage)


def test_a_recipe_that_needs_data() -> None:
    """static_int8 and rules with one scale for an input say that batches are needed."""
    for recipe in (static_int8(), {"": {"weight": hs.int8, "input": hs.uint8}}):
        with pytest.raises(hs.ArgumentError, match="give batches, or use dynamic_int8"):
            ptq.quantize(nn.Linear(4, 4), None, recipe)


def test_a_rule_for_one_layer() -> None:
    """A rule of one's own decides, and one that matches nothing is an error."""
    model = nn.Sequential(nn.Linear(32, 4), nn.Linear(4, 4))
    groups = hs.QSpec(hs.int4, hs.PerGroup(1, 32), symmetric=True)
    result = ptq.quantize(model, None, [hs.Rule("0", weight=groups)])
    assert result.coverage.of("0")[0].runs == "int4 weights"
    assert result.coverage.of("1")[0].runs == "float"
    with pytest.raises(hs.ArgumentError, match=r"rule for '?2'? matches nothing"):
        ptq.quantize(model, None, [hs.Rule("2", weight=groups)])
