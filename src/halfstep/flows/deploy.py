"""Run a quantized model on the engine that is fastest here."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.engines import by_name, installed
from halfstep.errors import ArgumentError, HalfstepWarning
from halfstep.flows.another_engine import with_engine
from halfstep.flows.batches import inference, run
from halfstep.flows.compare import Noise, floats
from halfstep.flows.result import Result
from halfstep.flows.timing import FLOAT, Timing, Timings, medians
from halfstep.graph.engine import Engine
from halfstep.graph.product import Forward

AUTO = "auto"


def deploy(
    quantized: Result | nn.Module, engine: str | Engine = AUTO, *, example: Any = None
) -> nn.Module:
    """The quantized model on the fastest engine: an object of its class that shares its tensors.

    engine: a name, or "auto": every installed engine runs the example, and the one with the lowest
        median time of a call is taken.
    example: what the model is going to be called with: a tensor, a tuple of arguments, or a dict of
        keyword arguments. Its sizes and ``torch.get_num_threads()`` decide which is fastest.

    Warns (``HalfstepWarning``) of an engine that was tried and failed. Raises ``ArgumentError`` for
    a model that is not quantized, an engine that is not known, and where none runs the model;
    ``MissingExtraError`` for an engine that is not installed.

    >>> import torch
    >>> from halfstep.flows import ptq
    >>> from halfstep.flows.deploy import deploy
    >>> x = torch.randn(32, 8)
    >>> result = ptq.quantize(torch.nn.Linear(8, 4), x)
    >>> fast = deploy(result, engine="torch", example=x)
    >>> type(fast), torch.equal(fast(x), result.model(x))
    (<class 'torch.nn.modules.linear.Linear'>, True)
    """
    if engine != AUTO:
        model = on_engine(quantized, engine)
        if example is not None:
            _call(model, example)
        return model
    if example is None:
        raise ArgumentError(
            'engine="auto" measures which engine is fastest: give example=, what the model is '
            "called with"
        )
    field = _Field(example)
    field.enter_all(quantized, installed())
    found = field.measured()
    for name, why in found.failed.items():
        warnings.warn(f"the engine {name} does not run it: {why}", HalfstepWarning, stacklevel=2)
    return field.models[found.fastest]


def bench(
    quantized: Result | nn.Module,
    example: Any,
    *,
    engines: Sequence[str] | None = None,
    float_model: nn.Module | None = None,
) -> Timings:
    """The median time of a call on each engine, all measured in blocks that take turns.

    example: as ``deploy``'s.
    engines: their names; by default all that are installed.
    float_model: a model to be measured beside them; the SQNR is against it, and otherwise against
        the first engine.

    An engine that fails is part of the table, with the reason. Raises ``ArgumentError`` for a model
    that is not quantized, an engine that is not known, and where none runs the model.

    >>> import torch
    >>> from halfstep.flows import ptq
    >>> from halfstep.flows.deploy import bench
    >>> x = torch.randn(32, 8)
    >>> bench(ptq.quantize(torch.nn.Linear(8, 4), x), x, engines=["torch"]).fastest
    'torch'
    """
    for name in engines or ():
        by_name(name)
    field = _Field(example)
    if float_model is not None:
        field.enter(FLOAT, lambda: float_model)
    field.enter_all(quantized, installed() if engines is None else engines)
    return field.measured()


def model_in(quantized: Result | nn.Module) -> nn.Module:
    """The model of a result, or the model itself.

    Raises ``ArgumentError`` for one that runs no programs.
    """
    model = quantized.model if isinstance(quantized, Result) else quantized
    modules = model.modules() if isinstance(model, nn.Module) else ()
    if not any(isinstance(vars(module).get("forward"), Forward) for module in modules):
        raise ArgumentError(
            f"this {type(model).__name__} is not quantized: give what hs.ptq.quantize returned, or "
            "its model"
        )
    return model


def on_engine(quantized: Result | nn.Module, engine: str | Engine) -> nn.Module:
    """The model on another engine: an object of its class that shares its tensors.

    Raises ``ArgumentError`` for an engine that is not known, and ``MissingExtraError`` for one that
    is not installed.
    """
    model = model_in(quantized)
    chosen = by_name(engine) if isinstance(engine, str) else engine
    return with_engine(model, chosen)


def reason_of(error: Exception) -> str:
    """What went wrong, in one line.

    >>> reason_of(RuntimeError("no such kernel"))
    'no such kernel'
    """
    first = str(error).strip().partition("\n")[0]
    return first[:200] or type(error).__name__


class _Field:
    """The models that run, what they returned for the example, and why others do not run."""

    def __init__(self, example: Any) -> None:
        self.example = example
        self.models: dict[str, nn.Module] = {}
        self.outputs: dict[str, list[Tensor]] = {}
        self.failed: dict[str, str] = {}

    def enter_all(self, quantized: Result | nn.Module, engines: Sequence[str]) -> None:
        """Let these engines take part. Raises ``ArgumentError`` where none runs the model."""
        model = model_in(quantized)
        for name in engines:
            self.enter(name, partial(on_engine, model, name))
        if not self.outputs.keys() - {FLOAT}:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.failed.items())
            raise ArgumentError(f"no engine runs this model here: {reasons}")

    def enter(self, name: str, make: Callable[[], nn.Module]) -> None:
        """Let a model take part, if it can be made and runs the example."""
        try:
            model = make()
            self.outputs[name] = floats(_call(model, self.example))
        except Exception as error:  # noqa: BLE001  (an engine may fail in any way of its own)
            self.failed[name] = reason_of(error)
        else:
            self.models[name] = model

    def measured(self) -> Timings:
        """The table."""
        calls = {name: partial(_call, one, self.example) for name, one in self.models.items()}
        times = medians(calls)
        against = next(iter(self.models))
        rows = [Timing(name, ms, self._sqnr(name, against)) for name, ms in times.items()]
        rows.sort(key=lambda row: row.ms or 0.0)
        rows += [Timing(name, note=why) for name, why in self.failed.items()]
        return Timings(tuple(rows), torch.get_num_threads(), against)

    def _sqnr(self, name: str, against: str) -> float | None:
        noise = Noise()
        if name != against:
            noise.add(self.outputs[against], self.outputs[name])
        return noise.sqnr


def _call(model: nn.Module, example: Any) -> Any:
    with inference(model):
        return run(model, example)
