"""oneDNN's int8 convolutions and linear layers, as PyTorch ships them, on plain tensors.

They compute docs/numerics.md's formula where the processor has the instructions for it; whether it
does is asked of numbers, in ``probe``. Activations are uint8: signed ones are shifted by 128 in
value and zero point, which is exact. Results are uint8 or float32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from halfstep.numerics.native_codes import Codes, Finish

Function: TypeAlias = Callable[..., Tensor]


@dataclass(frozen=True)
class Weights:
    """A symmetric int8 weight (O, ...), the scale of each output or one for all, and the bias."""

    codes: Tensor
    scale: Tensor
    bias: Tensor | None

    def prepared(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scale, zero point and bias as the operators take them."""
        scale = self.scale.float().flatten().contiguous()
        return scale, torch.zeros_like(scale, dtype=torch.int32), self.bias


class _Packed:
    """Weights in the order that oneDNN wants for the sizes of the first input.

    They serve all sizes; packed without any, many shapes would reorder them in every call.
    """

    def __init__(self, pack: Callable[[list[int]], Tensor]) -> None:
        self._pack = pack
        self._weights: Tensor | None = None

    def for_input(self, x: Tensor) -> Tensor:
        """The packed weights."""
        found = self._weights
        if found is None:
            found = self._weights = self._pack(list(x.shape))
        return found


@dataclass(frozen=True)
class Window:
    """How a convolution moves."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def is_there() -> bool:
    """Whether this PyTorch has oneDNN's operators."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qconv_pointwise")


def _unsigned(x: Tensor) -> Tensor:
    """Signed codes plus 128."""
    return x.view(torch.uint8).bitwise_xor(128)


def _operand(x: Codes) -> tuple[Callable[[Tensor], Tensor] | None, float, int]:
    """What makes the codes unsigned, if anything, and their scale and zero point then."""
    if x.dtype == torch.int8:
        return _unsigned, x.scale, x.zero_point + 128
    return None, x.scale, x.zero_point


def _output(finish: Finish) -> tuple[float, int, torch.dtype]:
    return finish.scale, finish.zero_point, finish.dtype


def _bounds(finish: Finish) -> tuple[Any, Any] | None:
    """What results have to be clamped to, or None: oneDNN's own bounds are those of uint8."""
    if finish.dtype == torch.float32:
        unbounded = (finish.lo, finish.hi) == (float("-inf"), float("inf"))
        return None if unbounded else (finish.lo, finish.hi)
    return None if (finish.qmin, finish.qmax) == (0, 255) else (finish.qmin, finish.qmax)


def _finished(function: Function, x: Codes, finish: Finish) -> Function:
    """The function of x as it comes, with results as they should be."""
    unsigned, bounds = _operand(x)[0], _bounds(finish)
    floats = finish.dtype == torch.float32
    if unsigned is None and bounds is None and not floats:
        return function

    def run(x: Tensor, *rest: Tensor) -> Tensor:
        y = function(x if unsigned is None else unsigned(x), *rest)
        if bounds is not None:
            y = y.clamp_(*bounds)
        return y.contiguous() if floats else y

    return run


def _with_batch(function: Function, ndim: int) -> Function:
    """The function for a sample without a batch, too."""

    def run(*tensors: Tensor) -> Tensor:
        if tensors[0].ndim == ndim:
            return function(*tensors)
        return function(*(tensor[None] for tensor in tensors))[0]

    return run


def conv(
    weights: Weights, window: Window, x: Codes, residual: Codes | None, finish: Finish
) -> Function | None:
    """A function of x (and the residual), or None for formats and shapes that are not served."""
    if finish.dtype == torch.int8 or not is_there():
        return None
    _, scale, zero_point = _operand(x)
    sides = (list(window.stride), list(window.padding), list(window.dilation), window.groups)
    w_scale, w_zero_point, bias = weights.prepared()
    ndim = weights.codes.ndim

    def pack(sizes: list[int]) -> Tensor:
        made = torch.ops.onednn.qconv_prepack(
            weights.codes, w_scale, scale, zero_point, *sides, sizes if ndim == 4 else None
        )
        return cast("Tensor", made)

    packed = _Packed(pack)
    then = (bias, *sides, *_output(finish))
    if residual is None:
        plain = torch.ops.onednn.qconv_pointwise.default
        given: tuple[Any, ...] = (w_scale, w_zero_point, *then, "none", [], "")

        def run(x: Tensor) -> Tensor:
            return cast("Tensor", plain(x, scale, zero_point, packed.for_input(x), *given))

        return _with_batch(_finished(run, x, finish), ndim)
    if ndim != 4 or residual.dtype != finish.dtype:
        return None
    sum_up = torch.ops.onednn.qconv2d_pointwise.binary
    after: tuple[Any, ...] = (residual.scale, residual.zero_point, "sum", 1.0, "none", [], "")

    def add(x: Tensor, held: Tensor) -> Tensor:
        rest = (packed.for_input(x), w_scale, w_zero_point, held)
        return cast("Tensor", sum_up(x, scale, zero_point, *rest, *then, *after))

    return _Sum(_with_batch(_finished(add, x, finish), 4))


class _Sum:
    """A convolution whose sum with a residual is written over it; called, over a copy of it."""

    def __init__(self, add: Function) -> None:
        self._add = add

    def __call__(self, x: Tensor, held: Tensor) -> Tensor:
        return self._add(x, _copied(held))

    def over(self, x: Tensor, held: Tensor) -> Tensor:
        """The same, without a copy where the residual lies as oneDNN wants it."""
        lies_right = held.ndim == 4 and held.is_contiguous(memory_format=torch.channels_last)
        return self._add(x, held if lies_right else _copied(held))


def _copied(held: Tensor) -> Tensor:
    if held.ndim != 4:
        return held.clone()
    return torch.empty_like(held, memory_format=torch.channels_last).copy_(held)


def linear(weights: Weights, x: Codes, finish: Finish) -> Function | None:
    """A function of x, or None for formats that are not served."""
    if finish.dtype == torch.int8 or not is_there():
        return None
    _, scale, zero_point = _operand(x)
    w_scale, w_zero_point, bias = weights.prepared()
    packed = _Packed(
        lambda sizes: cast("Tensor", torch.ops.onednn.qlinear_prepack(weights.codes, sizes))
    )
    act = torch.ops.onednn.qlinear_pointwise.default
    rest: tuple[Any, ...] = (w_scale, w_zero_point, bias, *_output(finish), "none", [], "")

    def run(x: Tensor) -> Tensor:
        return cast("Tensor", act(x, scale, zero_point, packed.for_input(x), *rest))

    return _finished(run, x, finish)
