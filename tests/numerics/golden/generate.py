"""Write ``torch_quantized.json``: what PyTorch's quantized tensors gave, for when they are gone.

Run it with a PyTorch that still has them: ``python tests/numerics/golden/generate.py``. Inputs keep
clear of ties, where PyTorch's multiplication by 1 / scale is not the quotient.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TARGET = Path(__file__).with_name("torch_quantized.json")
SHAPE = (3, 4, 5)


def clear_of_ties(scale: Tensor, generator: torch.Generator) -> Tensor:
    """Values up to 300 steps either way, at least a tenth of a step from each tie."""
    whole = torch.randint(-300, 300, SHAPE, generator=generator)
    return (whole + (torch.rand(SHAPE, generator=generator) - 0.5) * 0.8) * scale


def record(name: str, x: Tensor, q: Tensor, axis: int | None) -> dict[str, Any]:
    """One case as plain numbers; float32 values survive JSON exactly."""
    per_channel = axis is not None
    return {
        "dtype": name,
        "axis": axis,
        "scale": q.q_per_channel_scales().tolist() if per_channel else [q.q_scale()],
        "zero_point": q.q_per_channel_zero_points().tolist() if per_channel else [q.q_zero_point()],
        "x": x.tolist(),
        "ints": q.int_repr().tolist(),
        "values": q.dequantize().tolist(),
    }


def cases() -> list[dict[str, Any]]:
    """Per tensor and per channel along each axis, for each dtype; then a float zero point."""
    generator = torch.Generator().manual_seed(0)
    recorded = []
    for name in ("qint8", "quint8", "qint32"):
        scale = torch.rand((), generator=generator) * 0.2 + 0.01
        x = clear_of_ties(scale, generator)
        q = torch.quantize_per_tensor(x, scale.item(), 7, getattr(torch, name))
        recorded.append(record(name, x, q, None))
    for name in ("qint8", "quint8"):
        for axis, channels in enumerate(SHAPE):
            scale = torch.rand(channels, generator=generator) * 0.2 + 0.01
            zero = torch.randint(0, 100, (channels,), generator=generator)
            shape = [channels if dim == axis else 1 for dim in range(3)]
            x = clear_of_ties(scale.view(shape), generator)
            q = torch.quantize_per_channel(x, scale, zero, axis, getattr(torch, name))
            recorded.append(record(name, x, q, axis))
    scale, zero = torch.rand(2, 3, generator=generator).unbind()
    x = clear_of_ties(scale.view(3, 1, 1), generator) - (zero * scale).view(3, 1, 1)
    q = torch.quantize_per_channel(x, scale, zero, 0, torch.quint8)
    recorded.append(record("quint8", x, q, 0))
    return recorded


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    TARGET.write_text(json.dumps({"torch": torch.__version__, "cases": cases()}) + "\n")
