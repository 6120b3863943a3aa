"""Min and max of the integers, and the floats computed by hand: (ints - zero_point) * scale."""

import torch

import halfstep as hs

torch.manual_seed(0)
x = torch.randn(3, 4)
q = hs.quantize(x, hs.int8)

ints = q.int_repr()
print(ints.min().item(), ints.max().item())  # -> -128 127

# Subtract first: int8 - int8 would wrap, so take a wider integer.
by_hand = (ints.int() - q.q_zero_point()) * q.q_scale()
print(torch.allclose(by_hand, q.dequantize()))  # -> True

# With all dimensions, q.scale and q.zero_point broadcast for any granularity.
columns = hs.quantize(x, hs.int8, axis=1)
by_hand = (columns.int_repr() - columns.zero_point) * columns.scale
print(torch.equal(by_hand, columns.dequantize()))  # -> True
