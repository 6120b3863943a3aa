"""Train the network of `halfstep demo`, and write the file that it reads.

    pip install scikit-learn
    python examples/real/digits.py [FILE]

The images are the 1,797 digits of scikit-learn. A fifth of them score the network and are never
trained on; 64 of the others are kept to calibrate on. By default the file of the installed package
is written again.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor

import halfstep as hs
from halfstep.cli.demo.network import FILE, DigitNet, accuracy, scaled

SCORED, CALIBRATION = 360, 64


def train(images: Tensor, classes: Tensor, *, epochs: int = 40, batch: int = 64) -> DigitNet:
    """A trained network in eval mode, which saw its images shifted by up to a pixel as well."""
    torch.manual_seed(0)
    model = DigitNet().train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(batch)[: steps // epochs]:
            optimizer.zero_grad()
            F.cross_entropy(model(shifted(images[part])), classes[part]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def shifted(images: Tensor) -> Tensor:
    """The images moved together by -1, 0 or 1 pixel each way."""
    down, right = (int(torch.randint(3, ())) for _ in range(2))
    return F.pad(images, (1, 1, 1, 1))[..., down : down + 8, right : right + 8]


def main() -> None:
    """Train, score, write."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    found = load_digits()
    pixels = torch.from_numpy(found.images).to(torch.uint8)
    classes = torch.from_numpy(found.target)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    scored, rest = order[:SCORED], order[SCORED:]
    model = train(scaled(pixels[rest]), classes[rest])
    score = accuracy(model, scaled(pixels[scored]), classes[scored])
    content = {
        **model.state_dict(),
        "calibration": pixels[rest[:CALIBRATION]],
        "images": pixels[scored],
        "classes": classes[scored].to(torch.uint8),
    }
    hs.save_tensors(content, target)
    print(f"float32: {score:.4f} of {SCORED} digits right; {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
