"""Store the weights of a large layer in four bits, 32 to a scale; the arithmetic stays float."""

import torch
from torch import nn

import halfstep as hs

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).eval()
x = torch.randn(16, 512)

recipe = hs.recipes.weight_only(hs.int4, group_size=32)
result = hs.ptq.quantize(model, recipe=recipe)
weight = result.model[0].weight
print(weight.spec)  # -> QSpec(int4, PerGroup(axis=1, size=32), symmetric=True)
print(tuple(weight.scale.shape))  # -> (1024, 16)
print(result.coverage[0].runs)  # -> int4 weights
print(f"{result.summary.bytes_after / result.summary.bytes_before:.2f}")  # -> 0.19

# The same numbers as a float model with rounded weights.
with torch.no_grad():
    rounded = nn.Linear(512, 1024)
    rounded.weight.copy_(weight.dequantize())
    rounded.bias.copy_(model[0].bias)
    print(torch.allclose(result.model[0](x), rounded(x)))  # -> True
