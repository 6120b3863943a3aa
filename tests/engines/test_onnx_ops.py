"""Operators that the zoo lacks: each computes in ONNX Runtime what torch computes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from tests.engines.calibrated import flat, in_float
from tests.engines.running import onnx_model, run_onnx
from tests.graph.zoo import rand, tokens

ROWS: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (x * 2 - 1) / (x.abs() + 1) + 3 // (x.abs() + 1),
    "alpha": lambda x: torch.add(x, x, alpha=0.5) - torch.sub(x, x.exp(), alpha=2),
    "rsub": lambda x: 1 - x,
    "powers": lambda x: x**2 + x.abs().sqrt() + (x.abs() + 1).rsqrt() + x.square(),
    "logs": lambda x: (x.abs() + 1).log() + x.abs().log1p() + x.expm1(),
    "rounding": lambda x: x.round() + x.floor() + x.ceil() + x.sign(),
    "integer_division": lambda x: (x * 5).long() // 2 + (x * 5).long() % 3,
    "true_division": lambda x: (x * 5).long() / 2,
    "trunc_division": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "comparisons": lambda x: (x > 0) & (x <= 1) | (x == 0) ^ (x != x.floor()),
    "where": lambda x: torch.where(x > 0, x, 0.5) + torch.where(x > 0, 1, 0),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "min_max": lambda x: torch.maximum(x, x.flip(1)) + x.clamp(min=x.mean(), max=None),
    "clamps": lambda x: x.clamp(-0.5, 0.5) + x.clamp(max=0.1) + F.relu6(x) + F.hardtanh(x, -2, 2),
    "promotion": lambda x: (x > 0) * x + (x > 0).long() * 2,
    "softmaxes": lambda x: x.softmax(-1) + x.log_softmax(0) + x.softmax(1, dtype=torch.float32),
    "reductions": lambda x: (x.sum(), x.mean(0), x.amax(1), x.amin(), x.sum((0, 1), keepdim=True)),
    "max_dim": lambda x: (x.max(1).values, x.max(1).indices, x.min(0).values, x.argmax(), x.max()),
    "deviation": lambda x: (x.var(1), x.std(0, correction=0), x.var((0, 1), keepdim=True)),
    "norms": lambda x: (x.norm(dim=1), F.normalize(x, dim=1), x.norm(p=1, dim=0)),
    "logsumexp": lambda x: x.logsumexp(1, keepdim=True),
    "cumsum": lambda x: x.cumsum(1) + x.cumsum(0),
    "any_all": lambda x: ((x > 1).any(1), (x > -9).all(0), (x > 9).any()),
    "counts": lambda x: (x > 0).sum(1),
    "parts": lambda x: torch.cat([*x.chunk(2, 1), *x.split([1, 2, 3], 1), *x.split(4, 1)], 1),
    "stacks": lambda x: torch.stack([x, x + 1], 1).unbind(1),
    "slices": lambda x: (x[:, 1:-1], x[..., ::2], x[0], x[:, -1], x.narrow(1, 2, 3)),
    "turns": lambda x: (x.flip(0, 1), x.roll(2, 1), x.roll((1, -1), (0, 1)), x.t(), x.mT),
    "axes": lambda x: x[None, :, None].movedim(1, 3).squeeze(0).transpose(-1, -2).permute(2, 0, 1),
    "repeats": lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.repeat_interleave(2, 1), x.tile(2)),
    "expands": lambda x: (
        x[:, None].expand(-1, 4, -1) + x.sum(1, keepdim=True).expand_as(x)[:, None]
    ),
    "views": lambda x: x.flatten().view(-1, 2, 3).reshape(x.shape[0], -1).unflatten(1, (3, 2)),
    "gather": lambda x: x.gather(1, (x > 0).long()) + x.index_select(1, torch.tensor([1] * 6)),
    "index": lambda x: x[:, torch.tensor([0, 2, 2])],
    "made": lambda x: x + torch.ones_like(x) + x.new_zeros(x.shape) + torch.full(x.shape, 2.0),
    "ranges": lambda x: x + torch.arange(x.shape[1]) + torch.arange(x.shape[0])[:, None] / 2,
    "sizes": lambda x: x * (x.shape[0] * 2 - 1) + max(x.shape[0], 3) + (-x.shape[0]) // 2,
    "products": lambda x: torch.addmm(x[:, :3], x, x.t() @ x[:, :3], beta=2, alpha=0.5),
    "norm_layers": lambda x: F.layer_norm(x, (6,)) + F.rms_norm(x, (6,)),
    "activations": lambda x: F.gelu(x, approximate="tanh") + F.logsigmoid(x) + F.threshold(x, 0, 3),
    "soft": lambda x: F.softplus(x, 2.0, 1.0) + F.elu(x, 0.5) + F.celu(x, 2.0) + F.selu(x),
    "lerp": lambda x: torch.lerp(x, x + 1, 0.25),
    "einsum": lambda x: torch.einsum("ni,mi->nm", x, x),
    "casts": lambda x: x.double().float() + x.int() + x.to(torch.int64).type_as(x),
}
IMAGES: dict[str, Callable[[Tensor], Any]] = {
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1, 1, ceil_mode=True),
    "max_pool_wide": lambda x: F.max_pool2d(x, (2, 3), dilation=(1, 2)),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_pool_uncounted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_pool_ceil": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "avg_pool_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, None)) + F.adaptive_avg_pool2d(x, (3, 1)),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (2, 5)),
    "global": lambda x: x.mean((2, 3)) + x.mean((-1, -2)) + x.mean((2, 3), keepdim=True)[..., 0, 0],
    "pads": lambda x: F.pad(x, (1, 2, 3, 0), value=1.5) + F.pad(x, (3, 0, 1, 2), "replicate"),
    "crop": lambda x: F.pad(x, (-1, -1, 0, -2)),
    "circular": lambda x: F.pad(x, (2, 1, 0, 3), "circular"),
    "exact": lambda x: F.interpolate(x, size=(5, 13), mode="nearest-exact"),
    "nearest": lambda x: F.interpolate(x, size=(5, 13), mode="nearest"),
    "smaller": lambda x: F.interpolate(x, size=(4, 5), mode="bilinear"),
    "corners": lambda x: F.interpolate(x, size=(15, 9), mode="bilinear", align_corners=True),
    "cubic": lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"),
    "shuffles": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2) + F.channel_shuffle(x, 2),
    "groups": lambda x: F.group_norm(x, 2) + F.instance_norm(x),
    "batch_norm": lambda x: F.batch_norm(x, torch.ones(4), torch.ones(4) * 2),
    "attention": lambda x: F.scaled_dot_product_attention(
        x, x, x, x.mean(1, keepdim=True) @ x.mean(1, keepdim=True).mT > 0
    ),
    "biased": lambda x: F.scaled_dot_product_attention(x, x, x, x @ x.mT, scale=0.3),
}


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        """Call it."""
        return self.function(x)


def assert_same(model: nn.Module, *calls: tuple[Any, ...], opset: int | None = None) -> None:
    """The file of the first call's program gives torch's results for all calls."""
    plain = in_float(model, calls[0])
    written = onnx_model(plain.quantized, plain.module, opset)
    for args in calls:
        with torch.no_grad():
            expected = flat(model(*args))
        found = run_onnx(written, plain.quantized, plain.given(args))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, opset: int) -> None:
    """Of (N, 6), for another number of rows as well."""
    assert_same(Function(ROWS[name]), (rand(4, 6),), (rand(5, 6),), opset=opset)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str, opset: int) -> None:
    """Of (N, 4, H, W), for other sizes as well."""
    assert_same(Function(IMAGES[name]), (rand(2, 4, 8, 8),), (rand(3, 4, 11, 7),), opset=opset)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags(mode: str, padding: int | None) -> None:
    """Rows of indices, and bags of any length by their offsets, one of them empty."""
    model = nn.EmbeddingBag(10, 6, mode=mode, padding_idx=padding)
    assert_same(model, (tokens(3, 4),), (tokens(5, 2),))
    offsets = torch.tensor([0, 2, 2, 5])
    assert_same(model, (tokens(9), offsets), (tokens(7), offsets[:3]))


def test_weighted_bags_and_a_last_offset() -> None:
    """Weights for each index; the end of the last bag given."""
    model = nn.EmbeddingBag(10, 6, mode="sum", include_last_offset=True)
    assert_same(model, (tokens(9), torch.tensor([0, 2, 9]), rand(9)))


@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_cells(cell: Any) -> None:
    """Single steps of recurrent nets."""
    assert_same(cell(6, 5), (rand(3, 6),), (rand(1, 6),))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: x.topk(2)[0],
        lambda x: x.norm(p=3, dim=1),
    ],
)
def test_what_has_no_form_is_refused(function: Callable[[Tensor], Any]) -> None:
    """Rather than written wrongly."""
    plain = in_float(Function(function), (rand(2, 4, 8, 8),))
    with pytest.raises(ArgumentError, match="has no form in the ONNX file"):
        onnx_model(plain.quantized, plain.module)
