"""A small network trained here, on Fashion-MNIST, in about a minute.

    sudo apt-get install dataset-fashion-mnist
    python examples/real/fashion_mnist.py [FOLDER]

FOLDER holds the four files `train-images-idx3-ubyte.gz` and so on; by default it is where Debian's
package puts them.
"""

import gzip
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs

FOLDER = Path("/usr/share/datasets/fashion-mnist")
MEAN, DEVIATION = 0.286, 0.353
Labelled = tuple[Tensor, Tensor]


class Separable(nn.Module):
    """A depthwise and a pointwise convolution, and a way around them where the shape stays.

    Source: Sandler et al., "MobileNetV2", CVPR 2018, without the expansion.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.around = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = self.bn2(self.pointwise(F.relu(self.bn1(self.depthwise(x)))))
        return F.relu(y + x if self.around else y)


class Net(nn.Module):
    """Grey images of 28x28 to ten kinds of clothes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(32)
        self.blocks = nn.Sequential(
            Separable(32, 64, 1),
            Separable(64, 64, 1),
            Separable(64, 128, 2),
            Separable(128, 128, 1),
        )
        self.classify = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1, 28, 28) to (N, 10) logits."""
        x = self.blocks(F.relu(self.bn(self.stem(x))))
        return self.classify(F.adaptive_avg_pool2d(x, 1).flatten(1))


def load_images(which: str, folder: Path = FOLDER) -> Labelled:
    """`train` (60,000) or `t10k` (10,000): images (N, 1, 28, 28), normalized, and classes (N,)."""
    pixels = _content(folder / f"{which}-images-idx3-ubyte.gz", header=16)
    classes = _content(folder / f"{which}-labels-idx1-ubyte.gz", header=8)
    images = pixels.view(-1, 1, 28, 28).float().div_(255).sub_(MEAN).div_(DEVIATION)
    return images, classes.long()


def _content(file: Path, *, header: int) -> Tensor:
    return torch.frombuffer(
        bytearray(gzip.decompress(file.read_bytes())[header:]), dtype=torch.uint8
    )


def train(images: Tensor, classes: Tensor, *, epochs: int = 3, batch: int = 64) -> Net:
    """A trained network in eval mode: AdamW, its rate rising and falling once."""
    torch.manual_seed(0)
    model = Net().train()
    optimizer = torch.optim.AdamW(model.parameters())
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(batch)[: steps // epochs]:
            optimizer.zero_grad()
            F.cross_entropy(model(images[part]), classes[part]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    """The share of images whose class is the model's first answer."""
    answers = torch.cat([model(part).argmax(dim=1) for part in images.split(500)])
    return float((answers == classes).double().mean())


def main() -> None:
    """Train, and score the network in float and in integers."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    if not folder.is_dir():
        sys.exit(f"{folder} is missing: install dataset-fashion-mnist, or name its folder.")
    images, classes = load_images("train", folder)
    model = train(images[:20_000], classes[:20_000])
    quantized = hs.ptq.quantize(model, list(images[-256:].split(64))).model
    unseen = load_images("t10k", folder)
    for name, network in {"float32": model, "int8": quantized}.items():
        print(f"{name}: {accuracy(network, *unseen):.4f} of 10,000 images right")


if __name__ == "__main__":
    main()
