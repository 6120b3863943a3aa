"""How fast do observers and FakeQuantize take in a batch, against torch.ao.quantization's own?

    python benchmarks/observers.py [--threads 2] [--repeats 15]

Malloc keeps its pages, so that ratios compare the work. Where torch.ao has no fused form (channels
on another axis than 0), its plain FakeQuantize is what a user has.
"""

import argparse
import copy
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from timing import KEEP_PAGES, Row, medians, print_table, write_json
from torch import Tensor, nn
from torch.ao import quantization as ao

import halfstep as hs

PER_CHANNEL = hs.QSpec(hs.int8, hs.PerChannel(1), symmetric=True)
PER_ROW = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
Build = Callable[[], tuple[nn.Module, nn.Module]]
Task = Callable[[], object]


def fused(observer: type[nn.Module], **settings: object) -> nn.Module:
    """torch.ao's fused observer and fake-quantize."""
    module: nn.Module = ao.FusedMovingAvgObsFakeQuantize(
        observer, quant_min=-128, quant_max=127, dtype=torch.qint8, **settings
    )
    return module


def fake_quantize_per_channel() -> tuple[nn.Module, nn.Module]:
    """An activation's channels: torch.ao has this unfused only."""
    theirs = ao.FakeQuantize(
        ao.MovingAveragePerChannelMinMaxObserver,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=1,
    )
    return hs.FakeQuantize(hs.MovingAverageObserver(PER_CHANNEL)), theirs


def fake_quantize_per_row() -> tuple[nn.Module, nn.Module]:
    """A weight's output channels, against the fused form."""
    theirs = fused(
        ao.MovingAveragePerChannelMinMaxObserver, qscheme=torch.per_channel_symmetric, ch_axis=0
    )
    return hs.FakeQuantize(hs.MovingAverageObserver(PER_ROW)), theirs


def fake_quantize_per_tensor() -> tuple[nn.Module, nn.Module]:
    """One scale, against the fused form."""
    return hs.FakeQuantize(hs.MovingAverageObserver(hs.int8)), fused(ao.MovingAverageMinMaxObserver)


def inputs() -> dict[str, Tensor]:
    """An activation in both memory formats, the same behind a ReLU, and a weight."""
    activation = torch.randn(16, 64, 56, 56)
    return {
        "activation NCHW": activation,
        "activation NHWC": activation.contiguous(memory_format=torch.channels_last),
        "behind ReLU": activation.relu(),
        "weight": torch.randn(1024, 1024),
        "small 64x64": torch.randn(64, 64),
    }


# Operation, how both are made, the tensors, and what is asked: so many times torch's speed.
BENCHMARKS: list[tuple[str, Build, tuple[str, ...], float | None]] = [
    (
        "min/max per channel",
        lambda: (hs.MinMaxObserver(PER_CHANNEL), ao.PerChannelMinMaxObserver(1)),
        ("activation NCHW", "activation NHWC", "weight"),
        10,
    ),
    (
        "min/max per tensor",
        lambda: (hs.MinMaxObserver(hs.uint8), ao.MinMaxObserver()),
        ("activation NCHW", "small 64x64"),
        None,
    ),
    (
        "histogram",
        lambda: (hs.HistogramObserver(hs.uint8), ao.HistogramObserver()),
        ("activation NCHW", "activation NHWC", "behind ReLU", "weight"),
        4,
    ),
    (
        "FakeQuantize per channel, axis 1",
        fake_quantize_per_channel,
        ("activation NCHW", "activation NHWC"),
        3,
    ),
    ("FakeQuantize per channel, axis 0", fake_quantize_per_row, ("weight",), 3),
    (
        "FakeQuantize per tensor",
        fake_quantize_per_tensor,
        ("activation NCHW", "activation NHWC", "weight"),
        1.5,
    ),
    ("FakeQuantize per tensor", fake_quantize_per_tensor, ("small 64x64",), None),
]


def batch_rows(repeats: int) -> Iterator[Row]:
    """Taking in one batch, in no_grad."""
    tensors = inputs()
    for operation, build, names, asked in BENCHMARKS:
        for name in names:
            x = tensors[name]
            ours, theirs = (partial(module, x) for module in build())
            tasks: dict[str, Task] = {"ours": ours, "torch": theirs, "clone": x.clone}
            times = medians(tasks, repeats if x.numel() > 10_000 else 500)
            yield replace(Row(operation, name, **times), least_against_torch=asked)


def _step(module: nn.Module, x: Tensor, grad: Tensor) -> object:
    return torch.autograd.grad(module(x), x, grad)


def training_rows(repeats: int) -> Iterator[Row]:
    """Forward and backward of FakeQuantize."""
    x = torch.randn(16, 64, 56, 56, requires_grad=True)
    grad = torch.randn_like(x)
    builds = {
        "FakeQuantize per channel, axis 1, training": (fake_quantize_per_channel, 3.0),
        "FakeQuantize per tensor, training": (fake_quantize_per_tensor, 1.5),
    }
    for operation, (build, asked) in builds.items():
        ours, theirs = (partial(_step, module, x, grad) for module in build())
        tasks: dict[str, Task] = {"ours": ours, "torch": theirs, "clone": x.clone}
        row = Row(operation, "activation NCHW", **medians(tasks, repeats))
        yield replace(row, least_against_torch=asked)


def range_rows(repeats: int) -> Iterator[Row]:
    """Choosing the range at the end, which happens once for each layer."""
    x = torch.randn(1_000_000)
    ours, theirs = hs.HistogramObserver(hs.uint8), ao.HistogramObserver()
    ours(x), theirs(x)
    tasks: dict[str, Task] = {
        "ours": ours.qparams,
        "torch": theirs.calculate_qparams,
        "clone": x.clone,
    }
    yield Row("histogram: choose the range", "1,000,000 values", **medians(tasks, repeats))


def observed(model: nn.Module, observer: hs.Observer) -> nn.Module:
    """A copy of a model that shows every convolution's output to an observer of its own."""
    model = copy.deepcopy(model)
    for layer in [part for part in model.modules() if isinstance(part, nn.Conv2d)]:
        own = copy.deepcopy(observer)
        layer.register_forward_hook(lambda _, inputs, y, own=own: own(y))
    return model


def model_rows(repeats: int) -> Iterator[Row]:
    """A whole network with an observer behind each convolution; "torch" is the plain forward."""
    if not importlib.util.find_spec("efficientnet_lite_pytorch"):
        return
    package = importlib.import_module("efficientnet_lite_pytorch")
    model = package.EfficientNet.from_name("efficientnet-lite0").eval()
    x = torch.randn(8, 3, 224, 224)
    kinds = {
        "min/max behind every convolution": (hs.MinMaxObserver(hs.uint8), 1 / 1.15),
        "histogram behind every convolution": (hs.HistogramObserver(hs.uint8), 1 / 1.6),
    }
    for operation, (observer, asked) in kinds.items():
        watched, plain = partial(observed(model, observer), x), partial(model, x)
        tasks: dict[str, Task] = {"ours": watched, "torch": plain, "clone": x.clone}
        row = Row(operation, "EfficientNet-Lite0, 8 images", **medians(tasks, repeats))
        yield replace(row, least_against_torch=round(asked, 2))


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in KEEP_PAGES.items()):
        # malloc reads its settings when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEEP_PAGES)  # noqa: S606  (itself again)
    warnings.simplefilter("ignore")  # torch.ao announces its removal
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        rows = [*batch_rows(options.repeats), *range_rows(min(options.repeats, 5))]
        rows += model_rows(options.repeats)
    rows += training_rows(options.repeats)
    print_table(f"observers, {options.threads} threads", rows)
    print("wrote", write_json("observers", {"malloc keeps its pages": rows}))


if __name__ == "__main__":
    main()
