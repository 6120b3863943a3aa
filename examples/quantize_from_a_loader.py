"""Quantize a convolutional network with the images of a DataLoader, and look at what came of it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import halfstep as hs


class Net(nn.Module):
    """A convolution with a shortcut around it, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.inner = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to (N, 10)."""
        x = self.stem(x)
        x = torch.relu(x + self.inner(x))
        return self.fc(x.mean(dim=(2, 3)))


torch.manual_seed(0)
model = Net().eval()
images, labels = torch.randn(64, 3, 16, 16), torch.randint(10, (64,))
loader = DataLoader(TensorDataset(images, labels), batch_size=16)

# The batches are (images, labels), and the model takes images.
result = hs.ptq.quantize(model, loader, forward=lambda model, batch: model(batch[0]))

print(result.summary)  # -> recipe: static_int8 (chosen since batches were given)
print(result.coverage)  # -> 7 of 7 operators in integers (7 int8)
print(type(result.model).__name__)  # -> Net
print(result.model.fc.weight.int_repr().dtype)  # -> torch.int8

# Any number of images of any size; batch norm has become part of the convolution before it.
print(result.model(torch.randn(3, 3, 20, 24)).shape)  # -> torch.Size([3, 10])
print(result.coverage.of("stem.1")[0].why)  # -> into stem.0
