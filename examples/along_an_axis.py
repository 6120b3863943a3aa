"""Quantize along an axis with one scale for all channels, and see that the axis survives."""

import torch

import halfstep as hs

torch.manual_seed(0)
x = torch.randn(2, 4, 5, 3)

# A number is broadcast to every channel of axis 1.
q = hs.quantize(x, hs.int8, axis=1, scale=0.1, zero_point=0)
print(q.q_per_channel_axis(), q.scale.shape)  # -> 1 torch.Size([1, 4, 1, 1])
print(q.permute(1, 0, 2, 3).axis, q.flatten(2).axis, q[:, 2].axis)  # -> 0 1 None

matrix = hs.quantize(torch.randn(2, 5), hs.int8, axis=1, scale=0.1, zero_point=0)
print(matrix.q_per_channel_scales())  # -> tensor([0.1000, 0.1000, 0.1000, 0.1000, 0.1000])

# Both operands share scale and zero point, and the sum fits: it keeps them, and is exact.
total = matrix + matrix
print(total.axis, torch.equal(total.int_repr(), 2 * matrix.int_repr()))  # -> 1 True
