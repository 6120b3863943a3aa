"""Writes the golden checkpoints beside this file, and what torch says that they hold.

Run `python -m tests.formats.make_golden` with a torch that still has quantized tensors. The files
are kept for the day when no torch has them.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = "expected.json"

Content: TypeAlias = dict[str, Tensor]
Writer: TypeAlias = Callable[[Path], Content]


def per_tensor(path: Path) -> Content:
    """One scale: the three dtypes, a transposed view, and an empty tensor."""
    x = torch.randn(3, 5)
    content = {
        "quint8": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
        "qint8": torch.quantize_per_tensor(x, 0.02, -5, torch.qint8),
        "qint32": torch.quantize_per_tensor(x, 1e-6, 7, torch.qint32),
        "transposed": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).t(),
        "empty": torch.quantize_per_tensor(torch.empty(0, 3), 0.1, 3, torch.quint8),
    }
    torch.save(content, path)
    return content


def per_channel(path: Path) -> Content:
    """One scale per channel, along each axis, and a channels-last weight."""
    x, weight = torch.randn(3, 5), torch.randn(4, 3, 2, 2)
    content = {
        "axis0": _per_channel(x, 0, torch.qint8),
        "axis1": _per_channel(x, 1, torch.quint8),
        "conv": _per_channel(weight.contiguous(memory_format=torch.channels_last), 0, torch.qint8),
    }
    torch.save(content, path)
    return content


def _per_channel(x: Tensor, axis: int, dtype: torch.dtype) -> Tensor:
    scales = torch.rand(x.shape[axis], dtype=torch.float64) * 0.05 + 0.01
    low = 0 if dtype == torch.qint8 else 100
    return torch.quantize_per_channel(x, scales, torch.arange(x.shape[axis]) + low, axis, dtype)


def float_qparams(path: Path) -> Content:
    """Float zero points, as EmbeddingBag has them: 8, 4 and 2 bits, odd sizes included."""
    x = torch.rand(3, 5)
    scales, zero_points = torch.rand(3) * 0.05 + 0.05, torch.rand(3)
    content = {
        name: torch.quantize_per_channel(x, scales, zero_points, 0, getattr(torch, name))
        for name in ("quint8", "quint4x2", "quint2x4")
    }
    torch.save(content, path)
    return content


def modules(path: Path) -> Content:
    """The state dict of quantized modules."""
    model, content = _model()
    torch.save(model.state_dict(), path)
    return content | {
        "linear.scale": torch.tensor(0.25),
        "linear.zero_point": torch.tensor(3),
        "conv.scale": torch.tensor(0.5),
        "conv.zero_point": torch.tensor(4),
    }


def whole_module(path: Path) -> Content:
    """A pickled model: its classes, and the C++ objects with its weights."""
    model, content = _model()
    torch.save(model, path)
    return content


def script(path: Path) -> Content:
    """A TorchScript archive."""
    model, content = _model()
    torch.jit.save(torch.jit.script(_Pair(model["linear"], model["conv"])), str(path))
    del content["bag.weight"]
    return content


class _Pair(nn.Module):
    """Two quantized modules that run apart."""

    def __init__(self, linear: nn.Module, conv: nn.Module) -> None:
        super().__init__()
        self.linear, self.conv = linear, conv

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of both."""
        return self.linear(x), self.conv(y)


def _model() -> tuple[nn.ModuleDict, Content]:
    """A quantized module of each kind, and the weights that were put into it.

    The weights are not asked back from the modules: an EmbeddingBag's points into memory of the
    module, and dies with it.
    """
    from torch.ao.nn import quantized as nnq  # noqa: PLC0415  # gone one day

    scales, zero_points = torch.rand(4) * 0.05 + 0.05, torch.rand(4)
    bag_weight = torch.quantize_per_channel(
        torch.rand(4, 8), scales, zero_points, 0, torch.quint4x2
    )
    content = {
        "linear.weight": _per_channel(torch.randn(3, 5), 0, torch.qint8),
        "linear.bias": torch.randn(3),
        "conv.weight": _per_channel(torch.randn(4, 3, 2, 2), 0, torch.qint8),
        "conv.bias": torch.randn(4),
        "bag.weight": bag_weight,
    }
    linear, conv = nnq.Linear(5, 3), nnq.Conv2d(3, 4, 2)
    linear.set_weight_bias(content["linear.weight"], content["linear.bias"])
    conv.set_weight_bias(content["conv.weight"], content["conv.bias"])
    linear.scale, linear.zero_point, conv.scale, conv.zero_point = 0.25, 3, 0.5, 4
    bag = nnq.EmbeddingBag(4, 8, mode="sum", dtype=torch.quint4x2)
    bag.set_weight(bag_weight)
    return nn.ModuleDict({"linear": linear, "conv": conv, "bag": bag}), content


def recurrent(path: Path) -> Content:
    """The state dict of a dynamically quantized LSTM, whose weights are in C++ objects."""
    from torch.ao.quantization import quantize_dynamic  # noqa: PLC0415  # gone one day

    lstm = quantize_dynamic(nn.Sequential(nn.LSTM(3, 2)), {nn.LSTM}, dtype=torch.qint8)
    torch.save(lstm.state_dict(), path)
    weights = lstm[0].get_weight()
    cell = "0._all_weight_values.0.param"
    return {
        f"{cell}.4.0.weight": weights["weight_ih_l0"],
        f"{cell}.4.1.weight": weights["weight_hh_l0"],
    }


def legacy(path: Path) -> Content:
    """The container of torch before 1.6, quantized and plain."""
    x = torch.randn(3, 5)
    content = {
        "q": _per_channel(x, 0, torch.qint8),
        "half": x.half(),
        "brain": x.bfloat16(),
        "column": x[:, 2],
        "integers": torch.arange(4),
    }
    torch.save(content, path, _use_new_zipfile_serialization=False)
    return content


WRITERS: Mapping[str, Writer] = {
    writer.__name__: writer
    for writer in (
        per_tensor,
        per_channel,
        float_qparams,
        modules,
        whole_module,
        script,
        recurrent,
        legacy,
    )
}


def describe(tensor: Tensor) -> dict[str, Any]:
    """What torch says of a tensor, as JSON values."""
    if not tensor.is_quantized:
        return {"shape": list(tensor.shape), "values": tensor.double().reshape(-1).tolist()}
    described = {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "values": tensor.dequantize().double().reshape(-1).tolist(),
        **_qparams(tensor),
    }
    return described | {"ints": _ints(tensor, described)}


def _qparams(tensor: Tensor) -> dict[str, Any]:
    if tensor.qscheme() == torch.per_tensor_affine:
        return {"axis": None, "scale": [tensor.q_scale()], "zero_point": [tensor.q_zero_point()]}
    return {
        "axis": tensor.q_per_channel_axis(),
        "scale": tensor.q_per_channel_scales().tolist(),
        "zero_point": tensor.q_per_channel_zero_points().tolist(),
    }


def _ints(tensor: Tensor, described: dict[str, Any]) -> list[int]:
    """The integers, row-major; torch gives bytes for 2- and 4-bit ones, so they are worked out."""
    if tensor.dtype not in (torch.quint4x2, torch.quint2x4):
        ints: list[int] = tensor.int_repr().reshape(-1).tolist()
        return ints
    scale, zero_point = (
        torch.tensor(described[name], dtype=torch.float64).unsqueeze(1)
        for name in ("scale", "zero_point")
    )
    values = torch.tensor(described["values"], dtype=torch.float64).reshape(tensor.shape)
    return (values / scale + zero_point).round().long().reshape(-1).tolist()


def write(folder: Path) -> dict[str, Any]:
    """Write every file into a folder; the result says what torch reads from them."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of all that is used here
        return {
            name: {key: describe(tensor) for key, tensor in writer(folder / f"{name}.pt").items()}
            for name, writer in WRITERS.items()
        }


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / EXPECTED).write_text(json.dumps(write(GOLDEN), indent=1))
