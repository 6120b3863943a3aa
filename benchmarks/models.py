"""Networks that are timed with random weights: their speed does not depend on what they know."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a way around them; one ReLU is used twice.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
    """

    expansion = 1

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, outputs, H / stride, W / stride)."""
        around = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(y)) + around)
        return out


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, and a way around all three.

    Source: He et al. as above; the stride is that of the 3x3 convolution.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, 4 width, H / stride, W / stride)."""
        around = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        out: Tensor = self.relu(self.bn3(self.conv3(y)) + around)
        return out


class ResNet(nn.Module):
    """A residual network for images of any size from 32x32 up."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: tuple[int, ...], classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        widths, inputs = (64, 128, 256, 512), 64
        stages = []
        for width, depth in zip(widths, depths, strict=True):
            stages.append(_stage(block, inputs, width, depth))
            inputs = width * block.expansion
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) images to (N, classes) logits."""
        x = F.max_pool2d(self.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))
        return logits


class ResNet18(ResNet):
    """Four stages of two basic blocks."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__(BasicBlock, (2, 2, 2, 2), classes)


class ResNet50(ResNet):
    """Four stages of bottlenecks, 16 in all."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__(Bottleneck, (3, 4, 6, 3), classes)


def _stage(block: type[BasicBlock | Bottleneck], inputs: int, width: int, depth: int) -> nn.Module:
    first = block(inputs, width, 1 if width == 64 else 2)
    return nn.Sequential(
        first, *(block(width * block.expansion, width, 1) for _ in range(depth - 1))
    )


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow without an activation.

    Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, widen: int) -> None:
        super().__init__()
        width = inputs * widen
        self.expand = nn.Identity() if widen == 1 else _convolution(inputs, width, 1)
        self.depthwise = _convolution(width, width, 3, stride, width)
        self.narrow = nn.Sequential(
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.around = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.narrow(self.depthwise(self.expand(x)))
        return y + x if self.around else y


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1 for images of any size from 32x32 up."""

    # How much each block widens, its channels, how often it comes, the stride of the first.
    BLOCKS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 32, 3, 2)]
        inputs = 32
        for widen, outputs, count, stride in self.BLOCKS:
            for index in range(count):
                block = InvertedResidual(inputs, outputs, 1 if index else stride, widen)
                layers.append(block)
                inputs = outputs
        self.features = nn.Sequential(*layers, _convolution(inputs, 1280, 1))
        self.dropout = nn.Dropout(0.2)
        self.classify = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) images to (N, classes) logits."""
        x = F.adaptive_avg_pool2d(self.features(x), 1)
        logits: Tensor = self.classify(self.dropout(torch.flatten(x, 1)))
        return logits


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())
