"""Integer steps with operands that prove something: sums on and beside ties, all codes, layouts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import halfstep as hs
from halfstep.engines.torch_engine import bind
from halfstep.graph.edges import Edge
from halfstep.graph.frozen import Bound
from halfstep.graph.integer_ops import INTEGER
from halfstep.graph.program import Step
from halfstep.graph.trees import Value, mapped
from halfstep.tensor import QTensor

# Small sums times these lie on ties of SY, and beside them by rounding.
SX, SW = 0.037, 0.0123
SY = 2 * SX * SW
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.contiguous,
    "channels-last": lambda x: (
        x.transpose(1, -1).contiguous().transpose(1, -1) if x.ndim > 2 else x.contiguous()
    ),
    "sliced": lambda x: x.repeat_interleave(2, -1)[..., ::2],
}


def edge(dtype: hs.QDType = hs.uint8, scale: float = SX, zero_point: int = 3) -> Edge:
    """A format of codes."""
    return Edge(hs.QSpec(dtype), scale, zero_point)


def codes(shape: tuple[int, ...], of: Edge, *, near_ties: bool = False) -> Tensor:
    """Codes of all values, or within 4 steps of zero, where sums meet ties."""
    if near_ties:
        steps = torch.randint(-4, 5, shape) + of.zero_point
        return steps.clamp(of.qmin, of.qmax).to(of.storage)
    return torch.randint(of.qmin, of.qmax + 1, shape).to(of.storage)


def weight(shape: tuple[int, ...], axis: int | None = 0, *, near_ties: bool = False) -> QTensor:
    """A symmetric int8 weight with a scale for each index of ``axis``: SW times 1/2, 1 or 2."""
    most = 3 if near_ties else 127
    ints = torch.randint(-most, most + 1, shape, dtype=torch.int8)
    if axis is None:
        return hs.from_int_repr(ints, hs.QSpec(hs.int8, symmetric=True), scale=SW)
    scale = SW * torch.exp2(torch.randint(-1, 2, (shape[axis],)).float())
    spec = hs.QSpec(hs.int8, hs.PerChannel(axis), symmetric=True)
    return hs.from_int_repr(ints, spec, scale=scale)


def bias(outputs: int) -> Tensor:
    """Small multiples of SX * SW, which keep the ties."""
    return torch.randint(-5, 6, (outputs,)).float() * (SX * SW)


def bound(name: str, *args: Any) -> tuple[Bound | None, tuple[Any, ...]]:
    """The kernel for a step whose QTensors, biases and tables are known, and its other values.

    Tensors that stand in ``Run`` come in each run.
    """
    values: dict[str, Any] = {}

    def named(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor | Run):
            return leaf
        values[f"v{len(values)}"] = leaf
        return Value(f"v{len(values) - 1}")

    given = tuple(mapped(arg, named) for arg in args)
    known = {key: v for key, v in values.items() if not isinstance(v, Run)}
    found = bind(Step("y", f"int.{name}", given), lambda value: known.get(value.name))
    if found is None:
        return None, ()
    run = {key: v.tensor for key, v in values.items() if isinstance(v, Run)}
    return found, tuple(
        mapped(arg, lambda leaf: run[leaf.name] if isinstance(leaf, Value) else leaf)
        for arg in found.args
    )


class Run:
    """A tensor that is not known before a step runs."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def expected(name: str, *args: Any) -> Any:
    """What the formula gives."""
    plain = (
        mapped(arg, lambda leaf: leaf.tensor if isinstance(leaf, Run) else leaf) for arg in args
    )
    return INTEGER[f"int.{name}"](*plain)


def assert_equal(name: str, *args: Any) -> None:
    """The kernel that is bound gives the formula's numbers, in every bit; twice, for races."""
    want = expected(name, *args)
    kernel, given = bound(name, *args)
    assert kernel is not None, f"int.{name} has no kernel"
    for _ in range(2):
        assert_same(kernel.function(*given), want)


def assert_same(got: Any, want: Any) -> None:
    """Tensors, or tuples of them, of one dtype and shape and the same bits."""
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for left, right in zip(got, want, strict=True):
            assert_same(left, right)
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype == torch.float32:
        assert got.is_contiguous()
        got, want = (x.contiguous().view(torch.int32) for x in (got, want))
    assert torch.equal(got, want), f"{(got != want).sum().item()} of {want.numel()} differ"
