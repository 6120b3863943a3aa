"""Every kind of model that has to be captured, each with sizes other than the example's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Case:
    """A model, and calls that its product must serve; the first is the example."""

    make: Callable[[], nn.Module]
    calls: list[tuple[Any, ...]]
    kwargs: list[dict[str, Any]] = field(default_factory=list)

    def arguments(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Positional and keyword arguments of each call."""
        kwargs = self.kwargs or [{} for _ in self.calls]
        return list(zip(self.calls, kwargs, strict=True))


def rand(*shape: int) -> Tensor:
    """The same numbers for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(*shape: int) -> Tensor:
    """Indices below 10."""
    return torch.randint(10, shape, generator=torch.Generator().manual_seed(sum(shape)))


class Formula(nn.Module):
    """A function of the inputs with a linear layer at hand."""

    def __init__(self, function: Callable[..., Any], size: int = 6) -> None:
        super().__init__()
        self.function = function
        self.fc = nn.Linear(size, size)

    def forward(self, *inputs: Tensor) -> Any:
        """Apply the function."""
        return self.function(self.fc(inputs[0]), *inputs[1:])


def shuffle(x: Tensor) -> Tensor:
    """View, permute, slice, concatenate and add."""
    n, c = x.shape
    y = x.view(n, 2, c // 2).transpose(1, 2).reshape(n, c)
    return torch.cat([y[:, 1:], F.relu(y[:, :1]) + 1, x * y], dim=1)


def attend(x: Tensor) -> Tensor:
    """Attention written out with einsum, bmm and @."""
    scores = torch.einsum("nic,njc->nij", x, x).softmax(-1)
    return torch.bmm(scores, x) + scores @ x


class Block(nn.Module):
    """A residual block with one ReLU used twice, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.skip = nn.Conv2d(3, 8, 1)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 8, H, W)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(self.drop(y))) + self.skip(x)
        return self.relu(y)


class Tied(nn.Module):
    """An output layer that shares the embedding's weight, and a method beside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.out = nn.Linear(6, 10, bias=False)
        self.out.weight = self.embedding.weight
        self.title = "tied"

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) tokens to (N, T, 10)."""
        return self.out(self.encode(x).tanh())

    def encode(self, x: Tensor) -> Tensor:
        """A method beside forward."""
        return self.embedding(x)


@dataclass
class Answer:
    """What a model may return."""

    score: Tensor
    note: str = "fine"


class Pair(NamedTuple):
    """What a model may return as well."""

    first: Tensor
    second: Tensor


class Outputs(nn.Module):
    """Several inputs, several kinds of outputs, arguments by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(
        self, x: Tensor, pair: tuple[Tensor, Tensor], *, mask: Tensor | None = None, mode: str = "a"
    ) -> dict[str, Any]:
        """A dict of everything."""
        y = self.fc(x) + pair[0] - pair[1]
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        answer = Answer(y.mean(1))
        return {"pair": Pair(y, x), "answer": answer, "list": [y + 1, None], "rows": x.shape[0]}


class PaddedConv(nn.Conv2d):
    """A convolution that pads in its own forward, as EfficientNet-Lite's."""

    def forward(self, x: Tensor) -> Tensor:
        """Pad to keep ceil(size / stride)."""
        pads = []
        for size in (x.shape[-1], x.shape[-2]):
            out = -(-size // self.stride[0])
            pad = max((out - 1) * self.stride[0] + self.kernel_size[0] - size, 0)
            pads += [pad // 2, pad - pad // 2]
        return F.conv2d(F.pad(x, pads), self.weight, self.bias, self.stride)


class Attention(nn.Module):
    """Self-attention by torch's own function, with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, 8) to (N, T, 8)."""
        heads = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        return y.transpose(1, 2).flatten(2)


class SelfAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` of one input."""

    def forward(self, x: Tensor) -> Any:
        """Attend to itself."""
        return super().forward(x, x, x)


class Branching(nn.Module):
    """Python that depends on values, around parts that do not."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Block()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Take the branch that the data says."""
        y = self.head(self.body(x).mean((2, 3)))
        return y if y.sum() > 0 else -y


class Greedy(nn.Module):
    """A recurrent decoder that stops at the data's will."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.encoder = nn.GRU(6, 6, batch_first=True)
        self.cell = nn.GRUCell(6, 6)
        self.out = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> list[int]:
        """(1, T) tokens to the tokens decoded."""
        state = self.encoder(self.embedding(x))[1][0]
        found = [0]
        while len(found) < 6:
            state = self.cell(self.embedding(torch.tensor([found[-1]])), state)
            found.append(int(self.out(state).argmax()))
            if found[-1] == 3:
                break
        return found


class Quiet(nn.Module):
    """A part without gradients, in the middle of one with."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """Scale by a factor that is not trained."""
        with torch.no_grad():
            scale = self.fc(x).abs().amax()
        return self.fc(x) / scale


class Branches(nn.Module):
    """Python that depends on a size."""

    def forward(self, x: Tensor) -> Tensor:
        """Double long inputs."""
        return x * 2 if x.shape[1] > 4 else x


def images(*sizes: tuple[int, ...]) -> list[tuple[Tensor]]:
    """One call per size."""
    return [(rand(*size),) for size in sizes]


IMAGES = images((2, 4, 8, 10), (1, 4, 8, 10), (3, 4, 12, 6))
LINES = images((2, 4, 9), (1, 4, 9), (5, 4, 14))
VOLUMES = images((2, 4, 5, 6, 7), (1, 4, 6, 5, 5))
ROWS = images((3, 6), (1, 6), (7, 6))
TEXTS = images((2, 5, 8), (1, 5, 8), (4, 9, 8))
SEQUENCES = images((5, 2, 4), (5, 1, 4), (9, 3, 4), (1, 2, 4))


def around(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A layer between a convolution and a ReLU."""
    return lambda: nn.Sequential(nn.Conv2d(4, 4, 1), layer(), nn.ReLU())


def resized(**options: Any) -> Callable[[], nn.Module]:
    """An image made larger or smaller."""
    return around(lambda: nn.Upsample(**options))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "depthwise": lambda: nn.Conv2d(4, 8, 3, groups=4, stride=2),
    "dilation": lambda: nn.Conv2d(4, 4, 3, dilation=2, padding=2),
    "reflect": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
    "circular": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    "replicate": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate"),
    "same": lambda: nn.Conv2d(4, 4, 3, padding="same"),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, output_padding=1),
    "padded": lambda: PaddedConv(4, 4, 3, stride=2),
    "nearest": resized(scale_factor=2),
    "bilinear": resized(scale_factor=1.5, mode="bilinear"),
    "bicubic": resized(size=(7, 5), mode="bicubic", align_corners=True),
    "pixel_shuffle": around(lambda: nn.PixelShuffle(2)),
    "pixel_unshuffle": around(lambda: nn.PixelUnshuffle(2)),
    "max_pool": around(lambda: nn.MaxPool2d(3, 2, 1)),
    "avg_pool": around(lambda: nn.AvgPool2d(2)),
    "adaptive_pool": around(lambda: nn.AdaptiveAvgPool2d(1)),
    "adaptive_pool_2": around(lambda: nn.AdaptiveAvgPool2d((2, 3))),
    "adaptive_max": around(lambda: nn.AdaptiveMaxPool2d(2)),
    "group_norm": around(lambda: nn.GroupNorm(2, 4)),
    "instance_norm": around(lambda: nn.InstanceNorm2d(4, affine=True)),
    "batch_norm": around(lambda: nn.BatchNorm2d(4)),
    "dropout2d": around(lambda: nn.Dropout2d(0.3)),
    "prelu": around(lambda: nn.PReLU(4)),
}
ACTIVATIONS = [
    *(nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.Hardswish, nn.Hardsigmoid, nn.SiLU, nn.GELU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.SELU, nn.Hardtanh, nn.CELU, nn.Softsign, nn.GLU),
]
RECURRENT: dict[str, dict[str, Any]] = {
    "plain": {},
    "deep": {"num_layers": 2, "dropout": 0.2},
    "both_ways": {"bidirectional": True, "num_layers": 2},
    "no_bias": {"bias": False},
}
