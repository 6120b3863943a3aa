"""The network of ``halfstep demo``, and the digits that it reads: a program of a user, in small.

The images are of the "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI
Machine Learning Repository, 1998, CC BY 4.0): 8 x 8 pixels of 0 to 16. ``examples/real/digits.py``
trains the network and writes the file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfstep.formats import load_tensors

FILE: Final = Path(__file__).with_name("digits.safetensors")
BRIGHTEST: Final = 16.0


class DigitNet(nn.Module):
    """Four convolutions, one of them with a shortcut around it, and a linear layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = _conv(1, width)
        self.widen = _conv(width, 2 * width)
        self.inner = _conv(2 * width, 2 * width)
        self.deep = _conv(2 * width, 4 * width)
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1, 8, 8) to (N, 10): a score for each digit."""
        x = F.relu(self.widen(F.relu(self.stem(x))))
        x = F.max_pool2d(F.relu(x + self.inner(x)), 2)
        scores: Tensor = self.fc(F.relu(self.deep(x)).mean(dim=(2, 3)))
        return scores


def _conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
    )


@dataclass(frozen=True)
class Digits:
    """The trained network and its images: some to calibrate on, others to score it with.

    calibration, images: (N, 1, 8, 8), 0 to 1.
    classes: which digit each of ``images`` shows.
    """

    model: DigitNet
    calibration: Tensor
    images: Tensor
    classes: Tensor


def load_digits() -> Digits:
    """What lies beside this file."""
    tensors = load_tensors(FILE)
    calibration, images = (scaled(tensors.pop(name)) for name in ("calibration", "images"))
    classes = tensors.pop("classes").long()
    model = DigitNet()
    model.load_state_dict(tensors)
    return Digits(model.eval(), calibration, images, classes)


def scaled(pixels: Tensor) -> Tensor:
    """Pixels of 0 to 16, (N, 8, 8), as the network wants them: (N, 1, 8, 8), 0 to 1."""
    return pixels.unsqueeze(1) / BRIGHTEST


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    """The share of images whose digit is the model's first answer."""
    return float((model(images).argmax(dim=1) == classes).double().mean())
