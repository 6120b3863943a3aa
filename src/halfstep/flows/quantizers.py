"""What stands for a format while it is simulated: a function from tensor to tensor."""

import copy
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from halfstep.errors import ArgumentTypeError
from halfstep.flows.layers import Layer, as_target
from halfstep.numerics import fake_quantize
from halfstep.numerics.ranges import qparams_for_values
from halfstep.observe import FakeQuantize, MinMaxObserver, Observer
from halfstep.spec import QSpec


@runtime_checkable
class Quantizer(Protocol):
    """A quantizer of one's own: a function from a tensor to its quantized values, as floats.

    Any callable will do. One that also has ``spec`` and ``qparams() -> (scale, zero_point)`` says
    what integers it means, so that its saturation can be counted and its result shipped; one that
    has not stays a simulation.

    >>> import halfstep as hs, torch
    >>> isinstance(lambda x: x.sign(), hs.Quantizer)
    True
    """

    def __call__(self, x: Tensor, /) -> Tensor:
        """The quantized x, in x's shape and dtype."""
        ...


class RangeQuantizer:
    """Fake-quantize with the range of the very tensor at hand, found by ``observer``."""

    def __init__(self, spec: QSpec, observer: Any = None) -> None:
        self.spec = spec
        self.observer = observer
        self._qparams: tuple[Tensor, Tensor] = (torch.ones(()), torch.zeros((), dtype=torch.int32))

    def __call__(self, x: Tensor) -> Tensor:
        """x on the grid of its own range; gradients pass straight through."""
        spec = self.spec.normalized(x.ndim)
        if self.observer is None:
            self._qparams = qparams_for_values(x.detach(), spec, nan="ignore")
        else:
            self._qparams = observed_qparams(x.detach(), spec, self.observer)
        scale, zero_point = self._qparams
        return fake_quantize(x, spec, scale=scale, zero_point=zero_point)

    def qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point of the tensor seen last."""
        return self._qparams


def make_quantizer(layer: Layer, slot: str) -> Callable[[Tensor], Tensor]:
    """The quantizer that a rule asks for; observers and FakeQuantize are copied for each layer."""
    target = as_target(getattr(layer.rule, slot), f"the {slot} of {layer.title}")
    if isinstance(target, QSpec):
        if slot == "weight" or layer.rule.observer is None:
            return RangeQuantizer(target, layer.rule.weight_observer if slot == "weight" else None)
        return FakeQuantize(_observer_for(layer, target))
    if isinstance(target, FakeQuantize):
        return copy.deepcopy(target)
    if isinstance(target, Observer):
        made = FakeQuantize(copy.deepcopy(target))
        return made.freeze() if target.has_range else made
    quantizer: Callable[[Tensor], Tensor] = target
    return quantizer


def make_observer(layer: Layer, slot: str) -> Observer:
    """The observer that a rule asks for, for one slot of one layer; copied for each layer.

    Raises ``ArgumentTypeError`` for a function, which has no range.
    """
    target: Any = as_target(getattr(layer.rule, slot), f"the {slot} of {layer.title}")
    if isinstance(target, QSpec):
        made = _observer_for(layer, target)
    elif isinstance(target, Observer | FakeQuantize):
        made = copy.deepcopy(target.observer if isinstance(target, FakeQuantize) else target)
    else:
        raise ArgumentTypeError(
            f"the {slot} of {layer.title} is to become {target!r}, a function, which has no range "
            "to observe: give a QSpec or an observer"
        )
    made.name = layer.title
    return made


def _observer_for(layer: Layer, spec: QSpec) -> Observer:
    return made_observer(layer.rule.observer or MinMaxObserver, spec, f"observer= of {layer.title}")


def made_observer(wanted: Any, spec: QSpec, where: str) -> Observer:
    """The observer that a rule asks for: a copy of one, or what a class or a function makes.

    Raises ``ArgumentTypeError`` that says ``where`` for what makes none.
    """
    made: object = copy.deepcopy(wanted) if isinstance(wanted, Observer) else wanted(spec)
    if not isinstance(made, Observer):
        raise ArgumentTypeError(
            f"{where} is {wanted!r}, which makes a {type(made).__name__}: give an observer class, "
            "or a function from a QSpec to an observer"
        )
    return made


def observed_qparams(weight: Tensor, spec: QSpec, wanted: Any) -> tuple[Tensor, Tensor]:
    """Scale and zero point that an observer finds for a weight; one with a range keeps it.

    Raises ``ArgumentTypeError`` for what makes no observer, and what the observer raises.

    >>> import halfstep as hs, torch
    >>> from halfstep.flows.quantizers import observed_qparams
    >>> spec, weight = hs.QSpec(hs.int4, symmetric=True), torch.linspace(-1, 1, 101)
    >>> scale, _ = observed_qparams(weight, spec, hs.HistogramObserver)
    >>> scale.item() < hs.quantize(weight, spec).q_scale()
    True
    """
    observer = made_observer(wanted, spec, "weight_observer=")
    if not observer.has_range:
        observer(weight)
    return observer.qparams()
