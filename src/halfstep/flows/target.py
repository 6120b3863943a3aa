"""What a quantized model has to reach, as a user asks for it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from halfstep.errors import ArgumentError
from halfstep.flows.batches import inference

Evaluate: TypeAlias = Callable[[nn.Module], Any]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a quantized model has to reach: an SQNR of its outputs, or a score of the user's own.

    min_sqnr: in dB, on the data.
    evaluate: a function of a model that returns a number, of which more is better; max_drop: by how
        much it may be less than that of the float model, in its own unit.
    wide: whether a layer may have activations of 16 bits instead of being kept in float.

    Raises ``ArgumentError`` for both, for half of one, and for numbers that make no sense.

    >>> from halfstep.flows.target import Target
    >>> print(Target(min_sqnr=25))
    an output SQNR of at least 25 dB
    """

    min_sqnr: float | None = None
    evaluate: Evaluate | None = None
    max_drop: float | None = None
    wide: bool = False

    def __post_init__(self) -> None:
        if self.min_sqnr is not None and (self.evaluate, self.max_drop) != (None, None):
            raise ArgumentError(
                "min_sqnr= is a target, and evaluate= with max_drop= is another: give one of them"
            )
        if self.evaluate is None and self.max_drop is not None:
            raise ArgumentError(
                f"max_drop={self.max_drop} says how much may be lost, and not of what: give "
                "evaluate=, a function of a model that returns a number"
            )
        if self.evaluate is not None and self.max_drop is None:
            raise ArgumentError(
                "evaluate= says what counts, and not how much of it may be lost: give max_drop=, "
                "such as 0.01 for one point of an accuracy between 0 and 1"
            )
        if self.evaluate is not None and not callable(self.evaluate):
            raise ArgumentError(
                f"evaluate={self.evaluate!r} is no function: give one that takes a model and "
                "returns a number, more being better"
            )
        for name in ("min_sqnr", "max_drop"):
            _check_number(name, getattr(self, name))

    @property
    def is_asked(self) -> bool:
        """Whether there is one at all."""
        return self.min_sqnr is not None or self.evaluate is not None

    def score(self, model: nn.Module, what: str) -> float:
        """What ``evaluate`` says of a model, in eval mode and without gradients.

        what: the model, for people. Raises ``ArgumentError`` for what is no number.
        """
        if self.evaluate is None:
            raise ArgumentError("the target has no evaluate=")
        with inference(model):
            found = self.evaluate(model)
        try:
            number = float(found)
        except (TypeError, ValueError, RuntimeError):
            number = math.nan
        if math.isnan(number):
            raise ArgumentError(
                f"evaluate= returned {found!r} for {what}: it has to return a number, of which "
                "more is better"
            )
        return number

    def __str__(self) -> str:
        if self.min_sqnr is not None:
            return f"an output SQNR of at least {self.min_sqnr:g} dB"
        return f"evaluate() at most {self.max_drop:g} below the float model"


def _check_number(name: str, value: Any) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        unit = "decibels" if name == "min_sqnr" else "the unit of evaluate="
        raise ArgumentError(f"{name}={value!r}: give a number in {unit}, 0 or more")
