"""The networks that are timed whole, each with an input and data to calibrate on."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from models import MobileNetV2, ResNet18, ResNet50
from torch import Tensor, nn

# The loaders of real models are the examples' own.
sys.path.append(str(Path(__file__).parents[1]))

Inputs = tuple[Tensor, ...]
TOKENS = 32


@dataclass(frozen=True)
class Network:
    """A model in eval mode, the arguments that are timed, and batches of the same shape."""

    name: str
    model: nn.Module
    inputs: Inputs
    calibration: list[Inputs]
    transformer: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The ways to quantize it that are compared."""
        return ("static", "dynamic") if self.transformer else ("static",)


def _vision(name: str, build: Callable[[], nn.Module]) -> Callable[[int], Network]:
    def network(batch: int) -> Network:
        torch.manual_seed(0)
        model = build()
        images = torch.randn(16, 3, 224, 224)
        settle(model, images)
        return Network(name, model.eval(), (images[:batch],), _batches((images,), batch))

    return network


def settle(model: nn.Module, images: Tensor) -> None:
    """Give every batch norm the statistics of what it sees, as training would."""
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        model.train()(images)


def _batches(inputs: Inputs, batch: int) -> list[Inputs]:
    return [tuple(parts) for parts in zip(*(x.split(batch) for x in inputs), strict=True)]


def _loader(name: str) -> Any:
    """An example as a module: imported here, since only this network needs its packages."""
    return importlib.import_module(f"examples.real.{name}")


def efficientnet_lite0(batch: int) -> Network:
    """Real weights and photographs."""
    loader = _loader("effnet_lite0")
    images = loader.photographs()
    calibration = _batches((images,), batch)
    return Network("EfficientNet-Lite0", loader.load_model(), (images[:batch],), calibration)


def minilm(batch: int) -> Network:
    """Real weights and the first 32 tokens of news documents."""
    loader = _loader("minilm")
    model = loader.load_model()
    ids, mask = model.tokens([text for text in loader.background() if len(text) > 400][:48])
    inputs = ids[:, :TOKENS].contiguous(), mask[:, :TOKENS].contiguous()
    first = tuple(x[:batch] for x in inputs)
    return Network("MiniLM", model, first, _batches(inputs, batch), transformer=True)


NETWORKS: dict[str, Callable[[int], Network]] = {
    "resnet18": _vision("ResNet-18", ResNet18),
    "resnet50": _vision("ResNet-50", ResNet50),
    "mobilenetv2": _vision("MobileNetV2", MobileNetV2),
    "effnet_lite0": efficientnet_lite0,
    "minilm": minilm,
}
