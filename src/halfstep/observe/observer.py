"""Observer: what all observers share. State, ranges set by hand, and the way to qparams."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError
from halfstep.numerics import ops
from halfstep.numerics.checks import check_float
from halfstep.numerics.ranges import finite_range
from halfstep.observe.batch import count_non_finite, is_finite, non_finite_error
from halfstep.observe.buffers import SizedBuffers
from halfstep.observe.by_hand import Bound, check_range_fits, checked_range, in_place
from halfstep.observe.one_scale import qparams_of
from halfstep.observe.settings import check_policy
from halfstep.spec import PerChannel, PerTensor, QDType, QSpec

COUNTERS = ("values_seen", "values_ignored")


class Observer(SizedBuffers):
    """The base of all observers: a module that returns x unchanged and remembers its range.

        min_val = min(x)    max_val = max(x)    count = values seen    for each scale

    A subclass says in ``_take`` what else it remembers, and in ``_find_range`` which range it
    chooses. ``qparams`` then follow from the range [lo, hi] by the formulas of the spec. All state
    is in buffers: it is saved, copied and moved as any module's, and updated in place.

    Raises ``ArgumentTypeError`` or ``ArgumentError`` for a spec or policy that is none, and
    ``NonFiniteError`` for NaN and infinities unless ``nonfinite="ignore"``, which counts
    them in ``ignored`` and leaves them out; inside ``torch.compile`` the error comes from
    ``qparams``. ``name`` is the layer's path in error texts, where it is known.

    >>> import halfstep as hs, torch
    >>> issubclass(hs.HistogramObserver, hs.Observer)
    True
    """

    min_val: Tensor
    max_val: Tensor
    values_seen: Tensor
    values_ignored: Tensor
    hand_lo: Tensor
    hand_hi: Tensor
    name: str | None = None
    _scaled: tuple[str, ...] = ("min_val", "max_val")  # buffers that begin with the shape of scale

    def __init__(self, spec: QSpec | QDType | torch.dtype, *, nonfinite: str = "raise") -> None:
        super().__init__()
        self.spec = spec if isinstance(spec, QSpec) else QSpec(spec)
        self.nonfinite = check_policy(nonfinite)
        for name in ("min_val", "max_val", "hand_lo", "hand_hi"):
            self.register_buffer(name, torch.empty(0))
        for name in COUNTERS:
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    # --- What is known -------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many values have been seen, those that were ignored not counted."""
        return int(self.values_seen)

    @property
    def ignored(self) -> int:
        """How many NaN and infinite values have been left out."""
        return int(self.values_ignored)

    @property
    def has_range(self) -> bool:
        """Whether ``qparams`` can answer: data was seen, or a range was set by hand."""
        return bool(self.min_val.numel() or self.hand_lo.numel())

    def range(self) -> tuple[Tensor, Tensor]:
        """(lo, hi) that ``qparams`` come from, float32, in the shape of scale.

        The range set by hand, or the one that the observer finds in its data. A channel without
        data has [0, 0]. Raises ``ArgumentError`` when there is neither, and ``NonFiniteError`` when
        a compiled model has let NaN or infinities in.
        """
        hand, least, most = self.hand_lo, self.min_val, self.max_val
        if hand.numel():
            shape = tuple(least.shape)
            return in_place(hand, shape), in_place(self.hand_hi, shape)
        if not least.numel():
            raise ArgumentError(
                f"{self._who()} has seen no data: run batches through it, or call set_range(lo, hi)"
            )
        compiling = torch.compiler.is_compiling()
        if not compiling and is_finite(least, most):
            return self._find_range()
        unseen = least > most
        ends = torch.stack([least, most])
        if not (compiling or bool((ends.isfinite() | unseen).all())):
            raise non_finite_error(ends, self._who())
        lo, hi = self._find_range()
        return lo.masked_fill(unseen, 0.0), hi.masked_fill(unseen, 0.0)

    def qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point in the shape of scale, by the spec's formulas.

        The zero point is int32, or float32 in the float-zero-point form. A scale is always a normal
        positive float32. Raises as ``range`` does.
        """
        return qparams_of(*self.range(), self.spec)

    def dead_channels(self) -> list[int]:
        """Where the range is [0, 0], so that the scale is 1: positions in ``scale.flatten()``."""
        lo, hi = self.range()
        return ((lo == 0) & (hi == 0)).flatten().nonzero().flatten().tolist()

    # --- What changes it -----------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        """Take in x, a float tensor of any dtype and layout, and return the very same x."""
        values = check_float(x, type(self).__name__)
        # No buffer needs a gradient, so without x's own nothing is recorded.
        self._observe(values.detach() if values.requires_grad else values)
        return x

    def reset(self) -> None:
        """Forget all data and any range set by hand; spec, settings and device stay."""
        for name, buffer in self.named_buffers(recurse=False):
            buffer.zero_() if name in COUNTERS else self.resize(name, (0,))

    def set_range(self, lo: Bound, hi: Bound) -> None:
        """Use [lo, hi] from now on, whatever the data say, until ``reset``.

        Numbers, one value for each channel (a list or a 1-d tensor), or the shape of scale.
        Raises ``ArgumentError`` for lo > hi, for what is not finite in float32, and for a number of
        values that does not fit the granularity or the data seen so far.
        """
        lo, hi = checked_range(lo, hi, self.spec.granularity, tuple(self.min_val.shape))
        self.resize("hand_lo", tuple(lo.shape)).copy_(lo)
        self.resize("hand_hi", tuple(hi.shape)).copy_(hi)

    def merge(self, other: "Observer") -> "Observer":
        """Take in all that ``other`` has seen, and return self.

        The result equals, in every bit, one observer that saw both data, in either order. A range
        set by hand is not merged. Raises ``ArgumentError`` when class, spec or settings differ.
        """
        if type(other) is not type(self) or self.settings != other.settings:
            raise ArgumentError(
                f"{other!r} cannot be merged into {self!r}: merge observers of one class, with one "
                "spec and the same settings"
            )
        if other.min_val.numel():
            other = copy.deepcopy(other).to(self.min_val.device)
            self._fit(tuple(other.min_val.shape))
            self._merge(other)
            self.values_seen += other.values_seen
        self.values_ignored += other.values_ignored
        return self

    # --- What a subclass adds ------------------------------------------------------------------

    @property
    def settings(self) -> tuple[Any, ...]:
        """What must be equal in observers that are merged."""
        return (self.spec,)

    def _start(self, shape: tuple[int, ...]) -> None:
        """Make room for statistics of scales of this shape; nothing has been seen yet."""
        self.resize("min_val", shape).fill_(torch.inf)
        self.resize("max_val", shape).fill_(-torch.inf)

    def _take(self, x: Tensor, lo: Tensor, hi: Tensor, bad: Tensor | None) -> None:
        """Take in a batch with the range [lo, hi]; each block leaves out ``bad`` values of it."""
        self._widen(lo, hi)

    def _merge(self, other: Any) -> None:
        """Take in the statistics of an observer of the same class and shape, which has data."""
        self._widen(other.min_val, other.max_val)

    def _find_range(self) -> tuple[Tensor, Tensor]:
        """The range that this observer chooses; (inf, -inf) is allowed where nothing was seen."""
        return self.min_val, self.max_val

    # --- Inside --------------------------------------------------------------------------------

    def _widen(self, lo: Tensor, hi: Tensor) -> None:
        # minimum and maximum keep NaN, which is how it gets out of a compiled model.
        least, most = self.min_val, self.max_val
        torch.minimum(least, lo, out=least)
        torch.maximum(most, hi, out=most)

    def _observe(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        shape = self.spec.granularity.scale_shape(tuple(x.shape))
        self._fit(shape)
        bad = None
        lo, hi = ops.min_max(x, shape)
        compiling = torch.compiler.is_compiling()
        if (compiling and self.nonfinite == "ignore") or not (compiling or is_finite(lo, hi)):
            if self.nonfinite == "raise":
                raise non_finite_error(x, self._who())
            lo, hi = finite_range(x, shape)
            bad = count_non_finite(x, shape)
            self.values_ignored += bad.sum()
            self.values_seen -= bad.sum()
        self._take(x, lo, hi, bad)
        # In place: an assignment, which += ends in, is a module's slow one.
        self.values_seen.add_(x.numel())

    def _fit(self, shape: tuple[int, ...]) -> None:
        """Bring the state to scales of this shape; an error says when it has another one."""
        if self.min_val.shape == shape:
            return
        seen = tuple(self.min_val.shape)
        if self.min_val.numel() == 0:
            hand = tuple(self.hand_lo.shape)
            check_range_fits(hand, shape, self.spec.granularity, "the data")
            self._start(shape)
            return
        one_axis = isinstance(self.spec.granularity, PerTensor | PerChannel)
        if not one_axis or math.prod(seen) != math.prod(shape):
            raise GranularityError(
                f"{self._who()} has seen scales of shape {seen}, and this input has {shape} for "
                f"{self.spec.granularity}: reset() it, or use a granularity that all inputs share"
            )
        for name in self._scaled:
            self.resize(name, (*shape, *getattr(self, name).shape[len(seen) :]))

    def accepts(self, name: str, value: Tensor) -> bool:
        """Whether a range of another shape may be loaded: it must fit the granularity."""
        granularity, shape = self.spec.granularity, tuple(value.shape)
        if name not in ("min_val", "max_val") or not value.numel():
            return True
        is_plain = isinstance(granularity, PerTensor | PerChannel)
        return not is_plain or granularity.scale_shape(shape) == shape

    def _who(self) -> str:
        return type(self).__name__ + (f" of layer '{self.name}'" if self.name else "")

    def extra_repr(self) -> str:
        """Spec, count and range."""
        return f"{self.spec!r}, count={self.count}, range={self._describe_range()}"

    def _describe_range(self) -> str:
        by_hand = self.hand_lo.numel() > 0
        lo, hi = (self.hand_lo, self.hand_hi) if by_hand else (self.min_val, self.max_val)
        if not lo.numel():
            return "none"
        ends = f"[{lo.min().item():g}, {hi.max().item():g}]"
        return ends if lo.numel() == 1 else f"{lo.numel()} within {ends}"


def reset_observers(model: nn.Module) -> int:
    """Reset every observer in ``model``; return how many there are.

    >>> import halfstep as hs, torch
    >>> model = torch.nn.Sequential(hs.MinMaxObserver(hs.int8), torch.nn.ReLU())
    >>> _ = model(torch.randn(4))
    >>> hs.reset_observers(model), model[0].count
    (1, 0)
    """
    observers = observers_in(model)
    for observer in observers.values():
        observer.reset()
    return len(observers)


def observers_in(model: nn.Module) -> dict[str, Observer]:
    """The observers of a model by name. Raises ``ArgumentTypeError`` for what is no module."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    found: dict[str, Observer] = {}
    for name, module in model.named_modules():
        if isinstance(module, Observer):
            found[name] = module
        # A prepared module runs a program, and its observers are with that.
        inside = getattr(vars(module).get("forward"), "observers", {})
        found |= {f"{name}.{value}" if name else value: one for value, one in inside.items()}
    return found
