"""Quantize a random 2x2 tensor and look at its integers, scale and zero point."""

import torch

import halfstep as hs

torch.manual_seed(0)
x = torch.rand(2, 2)
q = hs.quantize(x, hs.uint8)

print(x)  # -> tensor([[0.4963, 0.7682],
print(q.int_repr())  # -> tensor([[165, 255],
print(f"scale {q.q_scale():.6f}, zero point {q.q_zero_point()}")  # -> scale 0.003013, zero point 0
print(q.dequantize())  # -> tensor([[0.4971, 0.7682],

error = q.quantization_error(x)
print(f"at most {error.max_steps:.2f} steps off")  # -> at most 0.37 steps off
