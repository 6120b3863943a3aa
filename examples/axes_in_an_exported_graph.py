"""Find the axis of every quantized weight in a `torch.export`ed program."""

import torch
from torch import nn

import halfstep as hs

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 3)).eval()
for layer, axis in ((model[0], 0), (model[2], 1)):  # output channels: axis 0, or 1 if transposed
    quantized = hs.quantize(layer.weight, hs.int8, axis=axis)
    layer.weight = nn.Parameter(quantized, requires_grad=False)

program = torch.export.export(model, (torch.randn(2, 3, 8, 8),))

# The program's parameters are the quantized tensors themselves; ask them.
for name, tensor in program.state_dict.items():
    if isinstance(tensor, hs.QTensor):
        print(f"{name}: axis {tensor.axis}, {tensor.shape[tensor.axis]} scales")
        # -> 0.weight: axis 0, 8 scales
        # -> 2.weight: axis 1, 4 scales

# In the graph, each is dequantized where it is used; the scale's shape shows the axis there, too.
for node in program.graph.nodes:
    if node.target is torch.ops.halfstep.dequantize.default:
        scale = node.args[1].meta["val"]
        print(f"{node.name}: scale {tuple(scale.shape)}")
        # -> dequantize: scale (8, 1, 1, 1)
        # -> dequantize_1: scale (1, 4, 1, 1)
