"""Running commands in this process, and what they are run on."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from halfstep.cli.app import main

CODE = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 64))

def wrong():
    raise RuntimeError("no luck")

def batches():
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        yield torch.randn(4, 1, 8, 8, generator=generator)

number = 3
"""


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``halfstep``."""
    monkeypatch.setattr(sys, "argv", ["halfstep", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def net() -> nn.Sequential:
    """What ``net`` in ``CODE`` makes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 64))
    return model.eval()


def write_inputs(folder: Path, module: str) -> None:
    """Code, a program of torch.export, its weights, and data."""
    (folder / f"{module}.py").write_text(CODE, encoding="utf-8")
    batch = torch.export.Dim("batch", min=2)
    x = torch.randn(4, 1, 8, 8)
    torch.export.save(
        torch.export.export(net(), (x,), dynamic_shapes=({0: batch},)), folder / "net.pt2"
    )
    torch.export.save(torch.export.export(net(), (x,)), folder / "fixed.pt2")
    torch.save(net().state_dict(), folder / "weights.pt")
    images = np.random.default_rng(0).normal(size=(42, 1, 8, 8))
    np.save(folder / "x.npy", images)
    np.savez(folder / "xy.npz", x=images, y=np.arange(42))
