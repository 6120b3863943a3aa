"""Which constants of an ONNX graph are quantized weights, and with which scale and zero point.

QDQ files have a ``DequantizeLinear`` on each quantized weight; QOperator files have operators that
take weight, scale and zero point; dynamically quantized ones multiply by the scale afterwards.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.assemble import assemble
from halfstep.formats.stored import StoredTensor
from halfstep.numerics.ops import pack
from halfstep.spec import Granularity, PerChannel, PerGroup, PerTensor, QDType, QSpec


@dataclass(frozen=True)
class Node:
    """An operator of a graph."""

    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def input(self, place: int) -> str:
        """The name of an input, empty where it is left out."""
        return self.inputs[place] if 0 <= place < len(self.inputs) else ""


@dataclass(frozen=True)
class Constant:
    """A tensor of a graph: integers of up to 7 bits load as int8 or uint8, one in each byte."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    qdtype: QDType | None
    nbytes: int
    load: Callable[[], Tensor]

    def stored(self) -> StoredTensor:
        """The constant as it is."""
        return StoredTensor(self.shape, self.dtype, None, self.nbytes, self.load)


@dataclass(frozen=True)
class Use:
    """A weight, its scale and zero point by name, and the axis of a scale with one dimension."""

    weight: str
    scale: str
    zero_point: str
    axis: int
    block: int = 0


# Operators that take (weight, scale, zero point) at these places, and the axis of several scales.
_TRIPLES: Final = {
    "QLinearConv": ((3, 4, 5, 0),),
    "QLinearMatMul": ((0, 1, 2, -2), (3, 4, 5, -1)),
    "DynamicQuantizeMatMul": ((1, 2, 3, -1),),
}
# Operators that leave the scale to a multiplication after them: weight, zero point, axis.
_SCALED_LATER: Final = {"ConvInteger": (1, 3, 0), "MatMulInteger": (1, 3, -1)}
COUNTED: Final = (
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QGemm"),
    *_TRIPLES,
    *_SCALED_LATER,
)


def quantized_constants(
    nodes: Sequence[Node], constants: Mapping[str, Constant]
) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Every constant, quantized ones as such, and the reasons for those that cannot be read.

    Scales and zero points of weights are inside them and not listed again.
    """
    uses: dict[str, Use] = {}
    for use in _uses(nodes):
        if {use.weight, use.scale, use.zero_point or use.scale} <= constants.keys():
            uses.setdefault(use.weight, use)
    inner = {name for use in uses.values() for name in (use.scale, use.zero_point)}
    tensors: dict[str, StoredTensor] = {}
    unreadable: dict[str, str] = {}
    for name, constant in constants.items():
        if name in uses and constant.qdtype is not None:
            try:
                tensors[name] = _quantized(constant, uses[name], constants)
            except HalfstepError as error:
                unreadable[name] = str(error)
        elif name not in inner:
            tensors[name] = constant.stored()
    return tensors, unreadable


def _uses(nodes: Sequence[Node]) -> list[Use]:
    found = []
    makers = {output: node for node in nodes for output in node.outputs}
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    for node in nodes:
        if node.op == "DequantizeLinear":
            axis, block = (int(node.attributes.get(k, v)) for k, v in _ATTRIBUTES)
            found.append(Use(node.input(0), node.input(1), node.input(2), axis, block))
        if node.op == "QGemm":
            axis = 0 if node.attributes.get("transB") else 1
            found.append(Use(node.input(3), node.input(4), node.input(5), axis))
        for weight, scale, zero_point, axis in _TRIPLES.get(node.op, ()):
            names = (node.input(weight), node.input(scale), node.input(zero_point))
            found.append(Use(*names, axis))
        if node.op in _SCALED_LATER:
            weight, zero_point, axis = _SCALED_LATER[node.op]
            factor = _scale_after(node, makers, readers)
            found.append(Use(node.input(weight), factor, node.input(zero_point), axis))
    return found


_ATTRIBUTES: Final = (("axis", 1), ("block_size", 0))


def _scale_after(
    node: Node, makers: Mapping[str, Node], readers: Mapping[str, Sequence[Node]]
) -> str:
    """What the result is multiplied by: itself a product of the scales of both operands."""
    for _ in range(2):  # a cast from int32, and the multiplication
        following = readers.get(node.outputs[0] if node.outputs else "", ())
        if len(following) != 1:
            return ""
        before, node = node, following[0]
        if node.op == "Mul":
            (factor,) = set(node.inputs) - set(before.outputs) or {""}
            product = makers.get(factor)
            if product is None or product.op != "Mul":
                return factor
            made = [name for name in product.inputs if name not in makers]
            return made[0] if len(made) == 1 else ""
        if node.op != "Cast":
            return ""
    return ""


def _quantized(weight: Constant, use: Use, constants: Mapping[str, Constant]) -> StoredTensor:
    scale, zero_point = constants[use.scale], constants.get(use.zero_point)
    if weight.qdtype is None or not scale.dtype.is_floating_point:
        raise FileFormatError("its scale is no float")
    spec = QSpec(weight.qdtype, _granularity(weight.shape, scale.shape, use))
    is_packed = weight.qdtype.is_packed

    def load() -> Tensor:
        codes = weight.load()
        codes = pack(codes, spec.dtype.bits) if is_packed else codes
        steps = scale.load().float()
        zeros = torch.zeros_like(steps) if zero_point is None else zero_point.load()
        if isinstance(spec.granularity, PerTensor):
            steps, zeros = steps.reshape(()), zeros.reshape(())
        shape = weight.shape if is_packed else None
        parts = (steps, zeros.to(torch.int32))
        return assemble(codes, spec, parts, dtype=scale.dtype, shape=shape)

    nbytes = weight.nbytes + scale.nbytes + (zero_point.nbytes if zero_point else 0)
    return StoredTensor(weight.shape, scale.dtype, spec, nbytes, load)


def _granularity(shape: tuple[int, ...], scale: tuple[int, ...], use: Use) -> Granularity:
    if math.prod(scale) == 1:
        return PerTensor()
    axis = use.axis + len(shape) if use.axis < 0 else use.axis
    if not 0 <= axis < len(shape):
        raise FileFormatError(f"its axis is {use.axis}, and it has {len(shape)} dimensions")
    if not use.block:
        return PerChannel(axis)
    if shape[axis] % use.block:
        raise FileFormatError(
            f"blocks of {use.block} do not divide its {shape[axis]} elements along axis {axis}"
        )
    return PerGroup(axis, use.block)
