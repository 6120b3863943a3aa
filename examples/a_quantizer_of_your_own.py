"""Simulate with a quantizer of one's own, on one layer and on the whole model."""

import torch
from torch import Tensor, nn

import halfstep as hs


class Ternary(nn.Module):
    """-a, 0 or a: the sign of all that is large, with the gradient passed straight through."""

    def forward(self, x: Tensor) -> Tensor:
        """x in three values."""
        large = x.abs() > 0.7 * x.abs().mean()
        size = x[large].abs().mean()
        return x + (x.sign() * size * large - x).detach()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
x = torch.randn(8, 16)
plain = model(x)

with hs.simulate(model, {"0": Ternary()}) as report:
    first = model(x)
print(sorted(report))  # -> ['0']

with hs.simulate(model, {nn.Linear: Ternary()}) as report:
    every = model(x)
    every.sum().backward()
print(sorted(report), model[0].weight.grad is not None)  # -> ['0', '2'] True

print(report["0"]["weight"].saturated)  # -> None
print((first - plain).norm() < (every - plain).norm())  # -> tensor(True)
print(torch.equal(model(x), plain))  # -> True
