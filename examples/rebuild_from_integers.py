"""Rebuild a quantized tensor from its integers, scales and zero points, as stored in some file."""

import torch

import halfstep as hs

ints = torch.tensor([[10, 20, 30], [40, 50, 60]], dtype=torch.int8)

# One scale for the whole tensor.
q = hs.from_int_repr(ints, hs.int8, scale=0.5, zero_point=10)
print(q.dequantize())  # -> tensor([[ 0.,  5., 10.],

# One scale for each row: the axis says which.
rows = hs.from_int_repr(ints, hs.int8, axis=0, scale=[0.5, 2.0], zero_point=[10, 0])
print(rows.dequantize()[1])  # -> tensor([ 80., 100., 120.])
print(rows.q_per_channel_axis(), rows.q_per_channel_scales())  # -> 0 tensor([0.5000, 2.0000])

# int_repr() is the way back, exactly.
print(torch.equal(rows.int_repr(), ints))  # -> True
