"""FakeQuantize: an observer and fake-quantize in one module, for simulation and training."""

import math

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError
from halfstep.numerics import ops
from halfstep.numerics.checks import check_float
from halfstep.numerics.learnable import integer_zero_point
from halfstep.numerics.qparams import SMALLEST_SCALE
from halfstep.observe.buffers import SizedBuffers
from halfstep.observe.by_hand import in_place
from halfstep.observe.observer import Observer
from halfstep.observe.settings import check_switch


class FakeQuantize(SizedBuffers):
    """Observe x, then round it to the grid of the observer's spec, in x's dtype.

        y = (clamp(rne(x / scale) + zero_point, qmin, qmax) - zero_point) * scale

    While ``observing`` is True each x is observed, and scale and zero point follow. While
    ``quantizing`` is True y is returned, otherwise x itself. Both are plain attributes that
    ``state_dict`` carries. The gradient of x is 1 where nothing was clamped and 0 elsewhere; a
    second backward is refused.

    ``learnable=True`` makes scale and zero point parameters (LSQ), which start from the observer's
    range at ``freeze()`` or at the first forward; from then on nothing is observed. With n elements
    for each scale their gradients are multiplied by 1 / sqrt(n * qmax). A symmetric format keeps
    zero point 0. Initialise before wrapping in DistributedDataParallel, which needs their shapes.

    Observing goes on in ``eval()`` too, as in torch.ao's modules: only the switches end it, so
    ``freeze()`` before evaluating, or the data of the evaluation widen the range.

    An observer that searches its range (histogram, percentile, entropy) does so at each forward
    while both switches are on: let it observe first, then ``freeze()``.

    Raises ``ArgumentTypeError`` for what is no observer or no float tensor, ``ArgumentError`` for
    quantizing before any data, ``GranularityError`` for an input that has other scales, and what
    the observer raises.

    Source: Jacob et al., CVPR 2018; Esser et al., "Learned Step Size Quantization", ICLR 2020.

    >>> import halfstep as hs, torch
    >>> module = hs.FakeQuantize(hs.MinMaxObserver(hs.uint8))
    >>> module(torch.tensor([0.0, 0.503, 2.55]))
    tensor([0.0000, 0.5000, 2.5500])
    >>> module.freeze()(torch.tensor([9.0]))
    tensor([2.5500])
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, observer: Observer, *, learnable: bool = False) -> None:
        super().__init__()
        if not isinstance(observer, Observer):
            raise ArgumentTypeError(
                f"observer={observer!r} is not an observer: give one, such as MinMaxObserver(spec)"
            )
        self.observer = observer
        self.spec = observer.spec
        self.learnable = check_switch(learnable, "learnable")
        self.observing = True
        self.quantizing = True
        if not learnable:
            self.register_buffer("scale", torch.empty(0))
            self.register_buffer("zero_point", torch.empty(0, dtype=self.spec.zero_point_dtype))
            return
        if self.spec.float_zero_point:
            raise ArgumentError(
                f"learnable=True trains an integer zero point, and {self.spec} has a float one: "
                "leave out float_zero_point"
            )
        self.scale = nn.Parameter(torch.empty(0))
        self.zero_point = nn.Parameter(torch.empty(0), requires_grad=not self.spec.symmetric)

    def qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point in use, the zero point as an integer code of the format."""
        if not self.scale.numel():
            raise self._no_scale_error()
        if not self.learnable:
            return self.scale, self.zero_point
        bounds = self.spec.qmin, self.spec.qmax
        codes = integer_zero_point(self.zero_point.detach(), *bounds)
        return self._positive_scale().detach(), codes

    def freeze(self) -> "FakeQuantize":
        """Take scale and zero point from the observer once more, stop observing, return self.

        Parameters that are trained already stay as they are.
        """
        if not (self.learnable and self.scale.numel()):
            self._refresh()
        self.observing = False
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Observe and quantize x, as the switches say."""
        check_float(x, type(self).__name__)
        starting = self.learnable and not self.scale.numel()
        if self.observing or starting:
            observer: Observer = self.observer
            observer(x)
            if self.quantizing and (starting or not self.learnable) and observer.has_range:
                self._refresh()
        if self.learnable and self.scale.numel():
            self.observing = False
        if not self.quantizing or x.numel() == 0:
            return x
        return self._quantize(x)

    def _quantize(self, x: Tensor) -> Tensor:
        spec = self.spec
        scale, zero_point = self.scale, self.zero_point
        if not scale.numel():
            raise self._no_scale_error()
        scale = self._positive_scale() if self.learnable else scale
        shape = spec.granularity.scale_shape(tuple(x.shape))
        if scale.shape != shape:
            scale, zero_point = self._placed(scale, shape), self._placed(zero_point, shape)
        bounds = spec.qmin, spec.qmax
        if self.learnable:
            elements = x.numel() // scale.numel()
            factor = 1 / math.sqrt(elements * max(spec.qmax, 1))
            return ops.learnable_fake_quantize(x, scale, zero_point, *bounds, factor)
        if x.requires_grad and torch.is_grad_enabled():
            return ops.fake_quantize_with_mask(x, scale, zero_point, *bounds)[0]
        return ops.fake_quantize(x, scale, zero_point, *bounds)

    def _positive_scale(self) -> Tensor:
        """A scale that training has pushed to 0 or below is used as the least normal float32.

        The gradient passes, so that it can come back.
        """
        least = SMALLEST_SCALE + (self.scale - self.scale.detach())
        return torch.where(self.scale < SMALLEST_SCALE, least, self.scale)

    def _placed(self, qparam: Tensor, shape: tuple[int, ...]) -> Tensor:
        if qparam.numel() not in (1, math.prod(shape)):
            raise GranularityError(
                f"{self._who()} has scales of shape {tuple(qparam.shape)}, and this input needs "
                f"{shape} for {self.spec.granularity}: observe inputs of one shape"
            )
        return in_place(qparam.reshape(()) if qparam.numel() == 1 else qparam, shape)

    def _refresh(self) -> None:
        """Scale and zero point from the observer, written in place."""
        with torch.no_grad():
            for name, value in zip(("scale", "zero_point"), self.observer.qparams(), strict=True):
                own: Tensor = getattr(self, name)
                if own.shape != value.shape:
                    own = self.resize(name, tuple(value.shape))
                own.copy_(value)

    def _no_scale_error(self) -> ArgumentError:
        return ArgumentError(
            f"{self._who()} has no scale yet: run a batch through it, or give its observer a "
            "range with set_range(lo, hi) and call freeze()"
        )

    def _who(self) -> str:
        name = self.observer.name
        return type(self).__name__ + (f" of layer '{name}'" if name else "")

    def get_extra_state(self) -> Tensor:
        """The switches (observing, quantizing) as a tensor, so that any file format keeps them."""
        return torch.tensor([self.observing, self.quantizing])

    def set_extra_state(self, state: Tensor) -> None:
        """Set the switches from what ``get_extra_state`` returned."""
        self.observing, self.quantizing = (bool(switch) for switch in state)

    def extra_repr(self) -> str:
        """The switches."""
        learnable = ", learnable=True" if self.learnable else ""
        return f"observing={self.observing}, quantizing={self.quantizing}{learnable}"
