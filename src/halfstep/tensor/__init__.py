"""The one quantized tensor."""

from halfstep.tensor import arithmetic as arithmetic  # these fill the dispatch tables
from halfstep.tensor import contraction as contraction
from halfstep.tensor import copies as copies
from halfstep.tensor import functional as functional
from halfstep.tensor import order as order
from halfstep.tensor import padding as padding
from halfstep.tensor import selections as selections
from halfstep.tensor import views as views
from halfstep.tensor.accuracy import QuantizationError as QuantizationError
from halfstep.tensor.arithmetic import add as add
from halfstep.tensor.arithmetic import mul as mul
from halfstep.tensor.create import dequantize as dequantize
from halfstep.tensor.create import from_int_repr as from_int_repr
from halfstep.tensor.create import quantize as quantize
from halfstep.tensor.dispatch import no_fallback as no_fallback
from halfstep.tensor.qtensor import QTensor as QTensor
