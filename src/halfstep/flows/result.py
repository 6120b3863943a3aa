"""Result: a quantized model, and what is to be known of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from halfstep.errors import ArgumentError
from halfstep.flows.coverage import Coverage
from halfstep.flows.origin import Preparation
from halfstep.flows.step_times import step_times
from halfstep.flows.summary import Summary
from halfstep.graph.engine import Engine
from halfstep.graph.product import Forward
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.spec.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Result:
    """What quantizing a model brings; prints as its summary.

    model: of the user's class, with integers for weights.
    coverage: how each of its operators runs, and why.
    summary: size, accuracy and equality in a few lines.
    recipe: the rules that it was made by.
    again: makes it anew, from a preparation, on other data. preparation: its float model, traced.
        Both are None for one that was read from a file or made in place.

    >>> import halfstep as hs, torch
    >>> from halfstep.flows import ptq
    >>> result = ptq.quantize(torch.nn.Linear(64, 64))
    >>> type(result.model), type(result.model.weight)
    (<class 'torch.nn.modules.linear.Linear'>, <class 'halfstep.tensor.qtensor.QTensor'>)
    """

    model: nn.Module
    coverage: Coverage
    summary: Summary
    recipe: Recipe
    again: Callable[..., "Result"] | None = field(default=None, repr=False)
    preparation: Preparation | None = field(default=None, repr=False)

    @property
    def parts(self) -> Mapping[str, tuple[Program | Quantized, ...]]:
        """The programs of the model, by the path of the module that runs them."""
        return parts_of(self.model)

    def recalibrate(self, batches: Any, **options: Any) -> "Result":
        """The same model and recipe, with ranges found on other data; options as ``quantize``.

        Raises ``ArgumentError`` for a result that no longer has its float model, as one that was
        read from a file or made in place.
        """
        if self.again is None or self.preparation is None:
            raise ArgumentError(
                "this result has no float model, which recalibrating starts from: it was read from "
                "a file or made with inplace=True. Quantize the float model with the new data"
            )
        return self.again(self.preparation, batches, options)

    def timed(self, example: Any) -> "Result":
        """The same result, whose coverage shows how long each operator takes, float and as it runs.

        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword
            arguments. Its sizes and ``torch.get_num_threads()`` decide the times, and other load.

        An operator that is slower than in float is flagged.

        >>> import halfstep as hs, torch
        >>> result = hs.ptq.quantize(torch.nn.Linear(64, 64), torch.randn(8, 64))
        >>> result.timed(torch.randn(8, 64)).coverage.is_timed
        True
        """
        engine = engine_of(self.model)
        if engine is None:
            raise ArgumentError("no part of the model runs on an engine, so there is none to time")
        times = step_times(self.model, example, engine)
        pairs = {name: (found.float_ms, found.ms) for name, found in times.items()}
        return replace(self, coverage=self.coverage.with_times(pairs))

    def __str__(self) -> str:
        return str(self.summary)

    __repr__ = __str__


def parts_of(model: nn.Module) -> dict[str, tuple[Program | Quantized, ...]]:
    """The programs of a model, by the path of the module that runs them."""
    found = {name: vars(module).get("forward") for name, module in model.named_modules()}
    return {
        name: tuple(forward.programs)
        for name, forward in found.items()
        if isinstance(forward, Forward)
    }


def engine_of(model: nn.Module) -> Engine | None:
    """What runs the programs of a model; None where none is calibrated."""
    found = (vars(module).get("forward") for module in model.modules())
    engines = (forward.engine for forward in found if isinstance(forward, Forward))
    return next((engine for engine in engines if engine is not None), None)
