"""An ONNX graph while it is written: nodes and initializers as plain data, without the package.

Every value knows its dtype and what is known of its shape, since torch's operators depend on both
and ONNX's do not. A node that is there already is not written twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from halfstep.engines.onnx_types import element_of

Shape: TypeAlias = tuple[int | None, ...]
# What a node takes: a value, a number or numbers that become a constant, or nothing.
Operand: TypeAlias = "Ref | float | Sequence[int] | None"

_LARGEST_SHARED = 64


@dataclass(frozen=True)
class Ref:
    """A value of the graph; None stands for a size that is not known before it runs."""

    name: str
    dtype: torch.dtype
    shape: Shape

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)


@dataclass(frozen=True)
class Number(Ref):
    """A number that torch has in Python, such as a size: a tensor of shape (1,)."""


@dataclass(frozen=True, eq=False)
class Known(Ref):
    """A parameter or constant; its tensor may be a ``QTensor``."""

    tensor: Tensor


@dataclass(frozen=True)
class Node:
    """One operator of the graph."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class Initializer:
    """Stored numbers: ONNX's element type, the shape, and the elements as a torch tensor.

    Elements of 4 bits stand two in a byte.
    """

    element: int
    shape: tuple[int, ...]
    tensor: Tensor


@dataclass
class Graph:
    """What has been written so far."""

    opset: int
    nodes: list[Node] = field(default_factory=list)
    initializers: dict[str, Initializer] = field(default_factory=dict)
    # Of the step that is being written: the prefix of new names, and the layer for messages.
    scope: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        self._names: set[str] = set()
        self._written: dict[Any, tuple[str, ...]] = {}
        self._constants: dict[Any, Ref] = {}
        # Parameters by name and memory; the tensors are held, so that no memory is used again.
        self._stored: dict[Any, tuple[Ref, Tensor]] = {}
        # Start, end and step of each value that a Range brings.
        self.ranges: dict[str, tuple[Any, Any, Any]] = {}

    @property
    def layer(self) -> str:
        """The layer that is being written, for messages."""
        return self.source or self.scope or "the model"

    def fresh(self, name: str) -> str:
        """The name, or the name with a number when it is taken."""
        wanted, count = name or "value", 1
        name = wanted
        while name in self._names:
            count += 1
            name = f"{wanted}.{count}"
        self._names.add(name)
        return name

    def emit(
        self,
        op: str,
        inputs: Sequence[Operand],
        shapes: Sequence[Shape],
        dtypes: Sequence[torch.dtype],
        attributes: dict[str, Any] | None = None,
    ) -> tuple[Ref, ...]:
        """Write a node with outputs of these shapes and dtypes, unless it is there already."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        names = tuple("" if value is None else self.value(value).name for value in inputs)
        given = tuple(sorted((attributes or {}).items()))
        key = (op, names, given, len(shapes))
        if key not in self._written:
            outputs = tuple(self.fresh(self.scope) for _ in shapes)
            label = f"{self.source or self.scope}/{op}"
            self.nodes.append(Node(self.fresh(label), op, names, outputs, given))
            self._written[key] = outputs
        return tuple(map(Ref, self._written[key], dtypes, shapes))

    def op(
        self,
        op: str,
        *inputs: Operand,
        shape: Shape | None = None,
        dtype: torch.dtype | None = None,
        **attributes: Any,
    ) -> Ref:
        """Write a node with one output.

        By default it has the dtype of the first input and the shape to which all broadcast.
        """
        refs = [value for value in inputs if isinstance(value, Ref)]
        if shape is None:
            shape = broadcast(*(ref.shape for ref in refs))
        return self.emit(op, inputs, (shape,), (dtype or refs[0].dtype,), attributes)[0]

    def value(self, operand: Operand) -> Ref:
        """The operand as a value of the graph; a number has dtype float32, numbers int64."""
        if isinstance(operand, Known):
            return self.stored(operand)
        if isinstance(operand, Ref):
            return operand
        if isinstance(operand, Sequence):
            return self.constant(torch.tensor(list(operand), dtype=torch.int64))
        return self.constant(torch.tensor(operand, dtype=torch.float32))

    def constant(self, tensor: Tensor) -> Ref:
        """A tensor that has no name of its own; a small one is stored once."""
        tensor = tensor.detach()
        if tensor.numel() > _LARGEST_SHARED:
            return self.store(f"{self.scope}.constant", tensor)
        key = (tensor.dtype, tuple(tensor.shape), tensor.reshape(-1).view(-1).tolist().__repr__())
        if key not in self._constants:
            self._constants[key] = self.store("constant", tensor)
        return self._constants[key]

    def number(self, value: "float | Number", dtype: torch.dtype) -> Ref:
        """A number as a tensor of no dimensions and this dtype."""
        if isinstance(value, Number):
            return self.cast(self.op("Squeeze", value, [0], shape=()), dtype)
        return self.constant(torch.tensor(value, dtype=dtype))

    def stored(self, known: Known) -> Ref:
        """A parameter under its own name, as floats."""
        key = memory_key(known.name, known.tensor)
        if key not in self._stored:
            self._stored[key] = self.store(known.name, known.tensor), known.tensor
        return self._stored[key][0]

    def store(self, name: str, tensor: Tensor, *, element: int | None = None) -> Ref:
        """Add an initializer."""
        name = self.fresh(name)
        tensor = tensor.detach()
        kind = element_of(tensor.dtype, self.layer) if element is None else element
        self.initializers[name] = Initializer(kind, tuple(tensor.shape), tensor)
        return Ref(name, tensor.dtype, tuple(tensor.shape))

    def name_output(self, x: Ref, name: str) -> None:
        """Give a value the name of an output, by a node that does nothing."""
        given = (self.value(x).name,)
        self.nodes.append(Node(self.fresh(f"{name}/Identity"), "Identity", given, (name,)))

    def remove_unread(self, outputs: Sequence[str]) -> None:
        """Drop the nodes and initializers that no output depends on."""
        read, kept = set(outputs), []
        for node in reversed(self.nodes):
            if read.intersection(node.outputs):
                kept.append(node)
                read.update(node.inputs)
        self.nodes = kept[::-1]
        self.initializers = {n: v for n, v in self.initializers.items() if n in read}

    # What many translations need.

    def cast(self, x: Ref, dtype: torch.dtype) -> Ref:
        """The value in another dtype."""
        if x.dtype == dtype:
            return x
        if isinstance(x, Known):
            return self.constant(x.tensor.to(dtype))
        return self.op("Cast", x, dtype=dtype, to=element_of(dtype, self.layer))

    def size(self, x: Ref, axis: int) -> "int | Number":
        """How many elements an axis has."""
        known = x.shape[axis]
        if known is not None:
            return known
        shape = self.op("Shape", x, shape=(x.rank,), dtype=torch.int64)
        found = self.op("Gather", shape, [axis % x.rank], shape=(1,), axis=0)
        return Number(found.name, torch.int64, (1,))

    def sizes(self, values: Sequence["int | Number"]) -> Ref:
        """Numbers as one list."""
        if not any(isinstance(value, Number) for value in values):
            return self.value([int(value) for value in values])  # type: ignore[arg-type]
        parts = [v if isinstance(v, Number) else self.value([int(v)]) for v in values]
        return self.op("Concat", *parts, shape=(len(parts),), dtype=torch.int64, axis=0)

    def reshape(self, x: Ref, sizes: Sequence["int | Number"]) -> Ref:
        """The elements in another shape; one size may be -1."""
        shape = tuple(v if isinstance(v, int) and v >= 0 else None for v in sizes)
        unknown = [i for i, v in enumerate(sizes) if isinstance(v, Number)]
        wanted = list(sizes)
        if len(unknown) == 1 and -1 not in sizes:
            wanted[unknown[0]] = -1
        return self.op("Reshape", x, self.sizes(wanted), shape=shape)

    def transpose(self, x: Ref, order: Sequence[int]) -> Ref:
        """The axes in another order."""
        if list(order) == list(range(x.rank)):
            return x
        shape = tuple(x.shape[axis] for axis in order)
        return self.op("Transpose", x, shape=shape, perm=tuple(order))


def memory_key(name: str, tensor: Tensor) -> Any:
    """What tells two tensors of one name apart."""
    return name, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which all of these broadcast.

    >>> broadcast((None, 4, 1), (4, 7))
    (None, 4, 7)
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_common(sizes) for sizes in zip(*padded, strict=True))


def _common(sizes: tuple[int | None, ...]) -> int | None:
    known = [size for size in sizes if size not in (None, 1)]
    if known:
        return known[0]
    return None if None in sizes else 1
