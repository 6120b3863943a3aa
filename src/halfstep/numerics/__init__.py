"""The arithmetic: qparams, quantize, dequantize, fake-quantize, packing, the integer reference."""

from halfstep.numerics import gradients as gradients  # registers the operators' gradients
from halfstep.numerics import ops as ops
from halfstep.numerics.simulated import fake_quantize as fake_quantize
from halfstep.numerics.simulated import learnable_fake_quantize as learnable_fake_quantize
