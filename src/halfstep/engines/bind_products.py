"""Kernels for the steps that sum products over weights known beforehand.

Candidates are our kernels and, where the probe finds it exact, oneDNN's; where there are both, they
race. A weight that does not fit (per group, more than 8 bits) is left to the step's operator.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from halfstep.engines import onednn, probe
from halfstep.engines.race import Race
from halfstep.engines.terms import Bounds, codes_of, finish_of
from halfstep.graph.edges import Edge
from halfstep.graph.frozen import Bound, Lookup
from halfstep.graph.integer_ops import INTEGER
from halfstep.numerics.native_codes import Codes, Finish, is_served
from halfstep.numerics.native_products import Geometry, Multiply, Packed, Product, pack
from halfstep.tensor import QTensor
from halfstep.tensor.contraction import constant_along, operands_of


class Given:
    """The weight of a step, (O, ...) or for transposed convolutions (C, O / groups, ...).

    outputs: the dimension of the outputs.
    """

    def __init__(self, weight: Any, bias: Any, lookup: Lookup, outputs: int = 0) -> None:
        found = lookup(weight)
        self.weight = found if isinstance(found, QTensor) else None
        self.bias = None if bias is None else lookup(bias)
        self.outputs = outputs
        self._is_known = self.weight is not None and (bias is None or self.bias is not None)

    def is_served(self) -> bool:
        """Whether the weight is known, with one scale for each output or for all."""
        w = self.weight
        if w is None or not self._is_known or w.int_repr().dtype not in (torch.int8, torch.uint8):
            return False
        summed = [dim for dim in range(w.ndim) if dim != self.outputs]
        return constant_along(w, *summed) and self._fits_32_bits(w)

    def _fits_32_bits(self, w: QTensor) -> bool:
        """Whether no sum of products with 8-bit activations leaves int32."""
        steps = (w.int_repr().to(torch.int32) - w.zero_point).abs()
        largest = steps.sum([dim for dim in range(w.ndim) if dim != self.outputs])
        return largest.numel() == 0 or int(largest.max()) * 255 < 2**31

    def packed(self, groups: int) -> Packed | None:
        """The weight packed for our kernels."""
        if self.weight is None or not self.weight.numel():
            return None
        codes, scale, zero_point = operands_of(self.weight)
        if self.outputs == 0:
            taps = codes.reshape(groups, codes.shape[0] // groups, codes.shape[1], -1)
            return pack(taps.transpose(2, 3), scale, zero_point, self.bias)
        taps = codes.reshape(groups, codes.shape[0] // groups, codes.shape[1], -1)
        # One scale for each output of a group, the same in all groups.
        scale, zero_point = (
            q if q.numel() == 1 else q.flatten().repeat(groups) for q in (scale, zero_point)
        )
        return pack(taps.permute(0, 2, 3, 1), scale, zero_point, self.bias)

    def for_onednn(self) -> onednn.Weights | None:
        """The weight for oneDNN, which takes symmetric int8."""
        if self.weight is None or self.outputs != 0 or not self.weight.numel():
            return None
        codes, scale, zero_point = operands_of(self.weight)
        if codes.dtype != torch.int8 or bool(zero_point.any()):
            return None
        bias = None if self.bias is None else self.bias.float()
        return onednn.Weights(codes.contiguous(), scale, bias)


def _bound(candidates: Sequence[Callable[..., Tensor] | None], *args: Any) -> Bound | None:
    """The only candidate, a race of several, or None."""
    found = [candidate for candidate in candidates if candidate is not None]
    if not found:
        return None
    return Bound(found[0] if len(found) == 1 else Race(*found), tuple(args))


def _product(
    given: Given, geometry: Geometry, groups: int, edges: Sequence[Edge | None], finish: Finish
) -> Product | None:
    """Our kernel, from the edges of x and the residual."""
    x, residual = (None if edge is None else codes_of(edge) for edge in edges)
    results = () if finish.dtype == torch.float32 else (finish.dtype,)
    operands = [codes.dtype for codes in (x, residual) if codes is not None]
    if x is None or not is_served(*operands, *results):
        return None
    packed = given.packed(groups)
    return None if packed is None else Product(packed, geometry, x, residual, finish)


def linear(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.linear."""
    x, x_edge, weight, bias, residual, residual_edge, activation, out = args
    given = Given(weight, bias, lookup)
    if not given.is_served():
        return None
    finish = finish_of(out, activation)
    ours = _product(given, Geometry(), 1, (x_edge, residual_edge), finish)
    theirs = None
    weights = given.for_onednn()
    if residual is None and weights is not None and probe.is_exact("linear"):
        theirs = onednn.linear(weights, codes_of(x_edge), finish)
    operands = (x,) if residual is None else (x, residual)
    return _bound((None if ours is None else ours.linear, theirs), *operands)


def conv(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.conv."""
    x, x_edge, weight, bias, stride, padding, dilation, groups, *after = args
    residual, residual_edge, activation, out = after
    given = Given(weight, bias, lookup)
    if given.weight is None or not given.is_served():
        return None
    finish, shape = finish_of(out, activation), given.weight.shape
    geometry = Geometry(tuple(shape[2:]), tuple(stride), tuple(padding), tuple(dilation))
    ours = _product(given, geometry, groups, (x_edge, residual_edge), finish)
    window = onednn.Window(tuple(stride), tuple(padding), tuple(dilation), groups)
    theirs = _onednn_conv(given, window, x_edge, residual_edge, finish)
    operands = (x,) if residual is None else (x, residual)
    return _bound((None if ours is None else ours.conv, theirs), *operands)


def _onednn_conv(
    given: Given, window: onednn.Window, x: Edge, residual: Edge | None, finish: Finish
) -> Callable[..., Tensor] | None:
    weights = given.for_onednn()
    if weights is None:
        return None
    outputs, channels = weights.codes.shape[:2]
    name = probe.conv_class(
        *(channels, outputs // window.groups, window.groups, weights.codes[0, 0].numel()),
        residual=residual is not None,
    )
    if not probe.is_exact(name):
        return None
    held = None if residual is None else codes_of(residual)
    return onednn.conv(weights, window, codes_of(x), held, finish)


def conv_transpose(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.conv_transpose."""
    x, x_edge, weight, bias, stride, padding, output_padding, groups, dilation, *after = args
    residual, residual_edge, activation, out = after
    given = Given(weight, bias, lookup, outputs=1)
    if given.weight is None or not given.is_served():
        return None
    geometry = Geometry(
        *(tuple(given.weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation)),
        output_padding=tuple(output_padding),
    )
    finish = finish_of(out, activation)
    ours = _product(given, geometry, groups, (x_edge, residual_edge), finish)
    operands = (x,) if residual is None else (x, residual)
    return _bound((None if ours is None else ours.conv,), *operands)


class RowProduct:
    """A linear layer or convolution of rows whose scales are found while the model runs."""

    def __init__(
        self, packed: Packed, geometry: Geometry, activation: Bounds, *, is_conv: bool
    ) -> None:
        finish = finish_of(None, activation)
        make = {}
        for dtype in (torch.uint8, torch.int8):
            product = Product(packed, geometry, Codes(dtype, 1.0, 0), None, finish)
            make[dtype] = product.conv_rows if is_conv else product.linear_rows
        self._by_dtype: dict[torch.dtype, Callable[..., Tensor]] = make

    def __call__(self, rows: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """float32 results of (codes, scale, zero_point)."""
        return self._by_dtype[rows[0].dtype](*rows)


def row_product(
    given: Given, geometry: Geometry, groups: int, activation: Bounds, *, is_conv: bool
) -> RowProduct | None:
    """Our kernel for rows, or None."""
    packed = given.packed(groups) if given.is_served() and is_served() else None
    return None if packed is None else RowProduct(packed, geometry, activation, is_conv=is_conv)


def linear_rows(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.linear_rows."""
    rows, weight, bias, activation = args
    given = Given(weight, bias, lookup)
    return _bound((row_product(given, Geometry(), 1, activation, is_conv=False),), rows)


def conv_rows(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.conv_rows."""
    rows, weight, bias, stride, padding, dilation, groups, activation = args
    given = Given(weight, bias, lookup)
    if given.weight is None:
        return None
    sides = (tuple(given.weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation))
    return _bound((row_product(given, Geometry(*sides), groups, activation, is_conv=True),), rows)


def conv_transpose_rows(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.conv_transpose_rows."""
    rows, weight, bias, stride, padding, output_padding, groups, dilation, activation = args
    given = Given(weight, bias, lookup, outputs=1)
    if given.weight is None:
        return None
    sides = (tuple(given.weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation))
    geometry = Geometry(*sides, output_padding=tuple(output_padding))
    return _bound((row_product(given, geometry, groups, activation, is_conv=True),), rows)


def matmul(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.matmul; a vector is a row on the left and a column on the right."""
    a, a_edge, b, b_edge, out = args
    results = () if out is None else (out.storage,)
    if not is_served(a_edge.storage, b_edge.storage, *results):
        return None
    kernel = Multiply(codes_of(a_edge), codes_of(b_edge), finish_of(out))

    def run(a: Tensor, b: Tensor) -> Tensor:
        left = a[None] if a.ndim == 1 else a
        right = b[:, None] if b.ndim == 1 else b
        y = kernel(left, right)
        if y is None:
            return cast("Tensor", INTEGER["int.matmul"](a, a_edge, b, b_edge, out))
        y = y.squeeze(-2) if a.ndim == 1 else y
        return y.squeeze(-1) if b.ndim == 1 else y

    return Bound(run, (a, b))


BINDERS = {
    "int.matmul": matmul,
    "int.linear": linear,
    "int.conv": conv,
    "int.conv_transpose": conv_transpose,
    "int.linear_rows": linear_rows,
    "int.conv_rows": conv_rows,
    "int.conv_transpose_rows": conv_transpose_rows,
}
