"""Integers in an ONNX graph: QuantizeLinear and DequantizeLinear around values and weights.

A runtime that has an integer kernel for an operator replaces it together with the nodes around it;
any other runs the file as it stands, in float, with the same codes.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from halfstep.engines.onnx_graph import Graph, Known, Ref, memory_key
from halfstep.engines.onnx_types import INT4, UINT4
from halfstep.errors import ArgumentError
from halfstep.graph.edges import Edge
from halfstep.graph.quantized import Decision, Execution
from halfstep.numerics import ops
from halfstep.spec import PerChannel, PerGroup, PerTensor, PerToken
from halfstep.tensor import QTensor

# The first version with 16-bit and 4-bit integers and with blocks of one scale each.
WIDE_OPSET = 21
LOWEST_OPSET = 13
_LARGEST_INT32 = 2**31 - 1


def needed_opset(edge_or_weight: Edge | QTensor) -> int:
    """The lowest opset that holds a format.

    >>> import halfstep as hs, torch
    >>> needed_opset(hs.quantize(torch.ones(2, 2), hs.int8)), needed_opset(Edge(
    ...     hs.QSpec(hs.int16), 1.0, 0))
    (13, 21)
    """
    spec = edge_or_weight.spec
    wide = spec.dtype.bits in (4, 16) or isinstance(spec.granularity, PerGroup)
    return WIDE_OPSET if wide else LOWEST_OPSET


@dataclass
class QdqGraph(Graph):
    """A graph with quantized values and weights."""

    # Of the step that is being written.
    decision: Decision = field(default_factory=lambda: Decision(Execution.FLOAT))

    def __post_init__(self) -> None:
        super().__post_init__()
        # The format of each value that a DequantizeLinear brings.
        self.edges: dict[str, Edge] = {}
        # Of each value that is another with zeros around: that other, and how many zeros.
        self.pads: dict[str, tuple[Ref, tuple[int, ...]]] = {}

    def quantized(self, x: Ref, edge: Edge) -> Ref:
        """The value rounded to the steps of an edge; one pair of nodes for all readers."""
        if self.edges.get(x.name) == edge:
            return x
        self._check_width(edge.spec.dtype.bits)
        scale, zero_point = self._qparams_of(edge)
        if isinstance(x, Known):
            codes = self._codes_of(x, edge)
        else:
            inside = self._inside(x, edge)
            codes = self.op(
                "QuantizeLinear", inside, scale, zero_point, shape=x.shape, dtype=edge.storage
            )
        found = self.op(
            "DequantizeLinear", codes, scale, zero_point, shape=x.shape, dtype=torch.float32
        )
        self.edges[found.name] = edge
        if x.name in self.pads:
            inner, pads = self.pads[x.name]
            self.pads[found.name] = (self.quantized(inner, edge), pads)
        return found

    def _qparams_of(self, edge: Edge) -> tuple[Ref, Ref]:
        return (
            self.constant(torch.tensor(edge.scale, dtype=torch.float32)),
            self.constant(torch.tensor(edge.zero_point, dtype=edge.storage)),
        )

    def _codes_of(self, x: Known, edge: Edge) -> Ref:
        scale, zero_point = edge.qparams(x.rank)
        values = x.tensor.detach().float()
        codes = ops.quantize(values, scale, zero_point, edge.qmin, edge.qmax, edge.storage)
        return self.store(f"{x.name}.codes", codes)

    def _inside(self, x: Ref, edge: Edge) -> Ref:
        """Cut off where the format is narrower than its storage, which QuantizeLinear fills."""
        limits = torch.iinfo(edge.storage)
        if (edge.qmin, edge.qmax) == (limits.min, limits.max):
            return x
        low, high = ((code - edge.zero_point) * edge.scale for code in (edge.qmin, edge.qmax))
        return self.op("Clip", x, low, high, shape=x.shape)

    def stored(self, known: Known) -> Ref:
        """A parameter as floats: integers with DequantizeLinear, floats as they are."""
        if isinstance(known.tensor, QTensor):
            return self.weight(known.name, known.tensor)
        return super().stored(known)

    def weight(self, name: str, q: QTensor) -> Ref:
        """Integers as an initializer, and the node that makes them floats."""
        key = q.spec, *memory_key(name, q.stored()[0])
        if key not in self._stored:
            self._stored[key] = self._weight(name, q), q
        return self._stored[key][0]

    def turned_weight(self, name: str, q: QTensor) -> Ref:
        """The integers (O, I) as (I, O), and the node that makes them floats."""
        return self.weight(name, turned(q))

    def _weight(self, name: str, q: QTensor) -> Ref:
        if q.spec.float_zero_point or q.spec.dtype.bits > 16:
            return self._by_formula(name, q)
        self._check_width(max(8, q.spec.dtype.bits))
        axis, block, scale, zero_point = _layout(q)
        if block and self.opset < WIDE_OPSET:
            raise ArgumentError(
                f"{name} has a scale for each group, which ONNX has from opset {WIDE_OPSET} on, "
                f"and opset={self.opset}: leave opset out, or use one scale for each channel"
            )
        codes = self._codes(name, q)
        # Zero points also where they are 0: ONNX Runtime has integer kernels that ask for them.
        given = [codes, self.store(f"{name}.scale", scale), self._zero_points(name, zero_point, q)]
        places = {} if axis is None else {"axis": axis}
        places |= {"block_size": block} if block else {}
        shape = tuple(q.shape)
        return self.op("DequantizeLinear", *given, shape=shape, dtype=torch.float32, **places)

    def _codes(self, name: str, q: QTensor) -> Ref:
        if not self._is_packed(q):
            return self.store(name, q.ints.contiguous())
        packed = self.store(name, q.stored()[0], element=INT4 if q.spec.dtype.signed else UINT4)
        stored = self.initializers[packed.name]
        self.initializers[packed.name] = type(stored)(stored.element, tuple(q.shape), stored.tensor)
        return packed

    def _zero_points(self, name: str, zero_point: Tensor, q: QTensor) -> Ref:
        wanted = zero_point.to(q.spec.dtype.storage)
        if not self._is_packed(q):
            return self.store(f"{name}.zero_point", wanted)
        element = INT4 if q.spec.dtype.signed else UINT4
        packed = self.store(f"{name}.zero_point", ops.pack(wanted, 4), element=element)
        stored = self.initializers[packed.name]
        self.initializers[packed.name] = type(stored)(element, tuple(wanted.shape), stored.tensor)
        return packed

    def _is_packed(self, q: QTensor) -> bool:
        """Whether the codes stand two in a byte, as the opset allows."""
        return q.spec.dtype.bits == 4 and self.opset >= WIDE_OPSET

    def _by_formula(self, name: str, q: QTensor) -> Ref:
        """``(q - zero_point) * scale`` in float, for formats that DequantizeLinear lacks."""
        codes = self.cast(self.store(name, q.int_repr()), torch.float32)
        zero_point = self.store(f"{name}.zero_point", q.zero_point.float())
        scale = self.store(f"{name}.scale", q.scale)
        return self.op("Mul", self.op("Sub", codes, zero_point), scale)

    def _check_width(self, bits: int) -> None:
        if bits > 8 and self.opset < WIDE_OPSET:
            raise ArgumentError(
                f"{self.layer} has {bits}-bit integers, which ONNX has from opset {WIDE_OPSET} on, "
                f"and opset={self.opset}: leave opset out, or use 8 bits"
            )


def turned(q: QTensor) -> QTensor:
    """A matrix of integers transposed, its scales with it."""
    view = q.t()
    return view if isinstance(view, QTensor) else q  # a view of a QTensor is one


def _layout(q: QTensor) -> tuple[int | None, int, Tensor, Tensor]:
    """Axis, block size, scales and zero points as DequantizeLinear takes them."""
    granularity = q.spec.granularity
    if q.scale.numel() == 1 or isinstance(granularity, PerTensor):
        return None, 0, q.scale.reshape(()), q.zero_point.reshape(())
    if isinstance(granularity, PerToken):
        granularity = PerChannel(0) if q.ndim == 2 else PerGroup(q.ndim - 1, q.shape[-1])
    if isinstance(granularity, PerChannel):
        return granularity.axis % q.ndim, 0, q.scale.reshape(-1), q.zero_point.reshape(-1)
    return granularity.axis % q.ndim, granularity.size, q.scale, q.zero_point


def with_int32_bias(q: QTensor, bias: Tensor, x_scale: float) -> tuple[QTensor, Tensor, Tensor]:
    """The bias as int32 in steps of ``x_scale * w_scale``, and weights for which it fits.

        b = rne(bias / (x_scale * w_scale))

    Where that is more than 2^31 - 1, the scale of the channel's weights is enlarged, which makes
    them coarser. Such weights are too small to matter beside the bias: a sum of less than 66,000 of
    their products is smaller than it.

    q: (O, ...), one scale or one for each channel; bias (O,). Returns weights, b and its scales.

    >>> import halfstep as hs, torch
    >>> w = hs.quantize(torch.ones(1, 2), hs.int8, scale=1e-9, zero_point=0)
    >>> fits, b, scale = with_int32_bias(w, torch.tensor([100.0]), 0.01)
    >>> b.dtype, round(float(b[0].double() * scale.double()), 3)
    (torch.int32, 100.0)
    """
    channels = q.scale.movedim(q.axis or 0, 0).reshape(-1).double()
    steps = bias.detach().double() / (channels * x_scale)
    factor = (steps.abs() / (_LARGEST_INT32 - 256)).clamp(min=1.0)
    if q.axis is None:
        factor = factor.max().reshape(1)
    if bool((factor > 1).any()):
        q = _coarser(q, factor.reshape(q.scale.shape))
    scale = (q.scale.reshape(-1) * torch.tensor(x_scale, dtype=torch.float32)).expand_as(bias)
    codes = (bias.detach().double() / scale.double()).round().to(torch.int32)
    return q, codes, scale.contiguous() if q.axis is not None else scale[0]


def _coarser(q: QTensor, factor: Tensor) -> QTensor:
    """The same weights in steps that are larger by a factor."""
    scale = (q.scale.double() * factor).float()
    wide = [part.to(torch.float64) for part in (q.ints - q.zero_point, q.scale, scale)]
    codes = (wide[0] * wide[1] / wide[2]).round() + q.zero_point
    codes = codes.clamp(q.spec.qmin, q.spec.qmax).to(q.spec.dtype.storage)
    return QTensor.from_parts(codes, scale, q.zero_point, q.spec)
