"""Fake-quantize a (2, 3, 4) tensor with a scale and zero point for each channel of axis 1."""

import torch

import halfstep as hs

torch.manual_seed(0)
x = torch.randn(2, 3, 4, requires_grad=True)
scale, zero_point = torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 10, -5])

y = hs.fake_quantize(x, hs.int8, axis=1, scale=scale, zero_point=zero_point)

for channel in range(3):
    values = " ".join(f"{value:.2f}" for value in y[0, channel].tolist())
    print(f"scale {scale[channel]:.2f}, zero point {zero_point[channel]:3d}: {values}")
    # -> scale 0.10, zero point   0: -1.10 -1.20 -0.30 -0.40
    # -> scale 0.20, zero point  10: 0.80 0.60 -0.40 -2.20
    # -> scale 0.05, zero point  -5: 0.45 -0.15 1.45 0.25

# Gradients pass straight through where nothing is clamped.
y.sum().backward()
print(x.grad.unique())  # -> tensor([1.])
