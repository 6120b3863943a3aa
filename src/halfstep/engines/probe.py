"""Whether oneDNN computes our formula on this machine, found out by numbers.

Processor flags do not tell: without VNNI, or with ``ONEDNN_MAX_CPU_ISA`` set below it, its kernels
saturate sums of pairs and scale in another order. So a class of operators is asked, once, for sums
on and beside ties and for the largest sums there are; one wrong integer rules it out.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

import torch
from torch import Tensor

from halfstep.engines import onednn
from halfstep.numerics import ops
from halfstep.numerics.fused import add_residual
from halfstep.numerics.native_codes import Codes, Finish

_SX, _SW = 0.037, 0.0123
_SY = 2 * _SX * _SW  # small sums lie on ties of this scale, and beside them by rounding
_X, _RESIDUAL = Codes(torch.uint8, _SX, 3), Codes(torch.uint8, _SX * 0.7, 5)
_TO_FLOATS = Finish(torch.float32)
# Kernel size and groups of a convolution with 32 channels.
_CONVS = {
    "conv": (3, 1),
    "pointwise conv": (1, 1),
    "depthwise conv": (3, 32),
    "grouped conv": (3, 4),
}
_RESIDUAL_SUFFIX = " with a residual"
Case: TypeAlias = tuple[Tensor, Tensor]


def _ties(x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Case:
    """Small integers."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(0, 8, x_shape, generator=generator, dtype=torch.uint8)
    return x, torch.randint(-3, 4, w_shape, generator=generator, dtype=torch.int8)


def _extremes(x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Case:
    """The largest codes: sums of pairs that 16 bits do not hold."""
    w = torch.full(w_shape, 127, dtype=torch.int8)
    w[1::2] = -127
    return torch.full(x_shape, 255, dtype=torch.uint8), w


def _qparams(codes: Codes, ndim: int) -> tuple[Tensor, Tensor]:
    shape = (1,) * ndim
    return torch.full(shape, codes.scale), torch.full(shape, codes.zero_point, dtype=torch.int32)


def _weights(w: Tensor) -> onednn.Weights:
    scale = _SW * torch.exp2(torch.arange(len(w)) % 3 - 1.0)
    return onednn.Weights(w, scale, torch.arange(len(w)) % 7 * (_SX * _SW))


def _to_codes(y: Tensor, case: Callable[..., Case]) -> Finish:
    """Codes on whose ties the sums lie, or in whose range the largest ones do."""
    scale = _SY if case is _ties else float(y.abs().max()) / 100
    return Finish(torch.uint8, scale, 100, 0, 255)


def _agrees(y: Tensor, function: onednn.Function | None, finish: Finish, *given: Tensor) -> bool:
    if function is None:
        return False
    if finish.dtype != torch.float32:
        qparams = _qparams(Codes(finish.dtype, finish.scale, finish.zero_point), y.ndim)
        y = ops.requantize(y, *qparams, finish.qmin, finish.qmax, finish.dtype)
    return torch.equal(function(*given), y)


def _conv(kernel: int, groups: int, *, residual: bool) -> bool:
    """Whether convolutions of one kind agree, to codes and to floats."""
    window = onednn.Window((1, 1), (kernel // 2,) * 2, (1, 1), groups)
    channels = 32 if groups > 1 or kernel > 1 else 512
    outcomes = []
    for make in (_ties, _extremes):
        x, w = make((2, channels, 7, 7), (32, channels // groups, kernel, kernel))
        weights, each = _weights(w), (-1, 1, 1, 1)
        zeros = torch.zeros(32, dtype=torch.int32).view(each)
        y = ops.conv(
            *(x, *_qparams(_X, 4), w, weights.scale.view(each), zeros, weights.bias),
            *(window.stride, window.padding, window.dilation, groups),
        )
        held = _ties((2, 32, 7, 7), (1,))[0]
        if residual:
            y = add_residual(y, held, *_qparams(_RESIDUAL, 4))
        to_codes = _to_codes(y, make)
        for finish in (to_codes,) if residual else (to_codes, _TO_FLOATS):
            function = onednn.conv(weights, window, _X, _RESIDUAL if residual else None, finish)
            outcomes.append(_agrees(y, function, finish, x, *([held] if residual else [])))
    return all(outcomes)


def _linear() -> bool:
    """Whether linear layers agree, to codes and to floats, for one row and for many."""
    outcomes = []
    for make in (_ties, _extremes):
        for rows in (1, 64):
            x, w = make((rows, 512), (32, 512))
            weights, zeros = _weights(w), torch.zeros(32, 1, dtype=torch.int32)
            given = (w, weights.scale.view(-1, 1), zeros, weights.bias)
            y = ops.linear(x, *_qparams(_X, 2), *given)
            outcomes += [
                _agrees(y, onednn.linear(weights, _X, finish), finish, x)
                for finish in (_to_codes(y, make), _TO_FLOATS)
            ]
    return all(outcomes)


_PROBES: dict[str, Callable[[], bool]] = {
    "linear": _linear,
    **{name: partial(_conv, *sizes, residual=False) for name, sizes in _CONVS.items()},
    **{
        f"{name}{_RESIDUAL_SUFFIX}": partial(_conv, *sizes, residual=True)
        for name, sizes in _CONVS.items()
    },
}


@cache
def is_exact(name: str) -> bool:
    """Whether oneDNN gives our integers for a class of operators; found out once.

    >>> from halfstep.engines.probe import is_exact
    >>> is_exact("linear") in (True, False)
    True
    """
    plain = name.removesuffix(_RESIDUAL_SUFFIX)
    if not onednn.is_there() or (plain != name and not is_exact(plain)):
        return False
    try:
        return _PROBES[name]()
    except RuntimeError:  # an operator that this build or processor lacks
        return False


def conv_class(channels: int, outputs: int, groups: int, taps: int, *, residual: bool) -> str:
    """The class that answers for a convolution; channels and outputs are those of a group."""
    if groups > 1:
        name = "depthwise conv" if channels == outputs == 1 else "grouped conv"
    else:
        name = "conv" if taps > 1 else "pointwise conv"
    return f"{name}{_RESIDUAL_SUFFIX}" if residual else name


def report() -> dict[str, bool]:
    """Each class of operators, and whether oneDNN serves it here."""
    return {name: is_exact(name) for name in _PROBES}
