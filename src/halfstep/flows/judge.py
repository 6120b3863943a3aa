"""At the end of every flow: how close the quantized model is, and whether its engine is right."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from halfstep.engines import by_name
from halfstep.engines.difference import difference
from halfstep.errors import HalfstepWarning
from halfstep.flows.another_engine import with_engine
from halfstep.flows.compare import Noise, against_reference, edge_noise
from halfstep.flows.data import Data
from halfstep.flows.result import Result
from halfstep.flows.watch import Watch
from halfstep.graph.engine import Engine
from halfstep.graph.quantized import Quantized

# Below this the outputs have little to do with those of the float model.
COLLAPSE = 10.0


def accuracy(result: Result, data: Data) -> Result:
    """The result, with the SQNR of its outputs on the data that was kept."""
    noise = Noise()
    for expected, found in data.run_kept(result.model):
        noise.add(expected, found)
    summary = replace(result.summary, batches=data.count, sqnr=noise.sqnr, compared=noise.batches)
    return replace(result, summary=summary)


def equality(result: Result, data: Data, engine: Engine, *, everywhere: bool) -> Result:
    """The result, with how its engine compares with the reference, on one sample or on all data.

    An engine that shows no integers is compared by what the model returns.
    """
    twin, integers = against_reference(result.model, by_name("reference"))
    found = _outputs(twin, data, everywhere=everywhere)
    text = str(integers)
    if not integers.values and (step := _last_step(result)) is not None:
        formulas = with_engine(result.model, by_name("reference"))
        expected = _outputs(formulas, data, everywhere=everywhere)
        text = str(difference(expected, found, step=step))
    equality = {**result.summary.equality, engine.name: text}
    return replace(result, summary=replace(result.summary, equality=equality))


def _outputs(model: nn.Module, data: Data, *, everywhere: bool) -> list[Tensor]:
    if not everywhere:
        return data.run_sample(model)
    return [one for _, outputs in data.run_kept(model) for one in outputs]


def _last_step(result: Result) -> float | None:
    """The scale of the last value that is codes; None where there is none."""
    scales = [
        part.edges[step.name].scale
        for several in result.parts.values()
        for part in several
        if isinstance(part, Quantized)
        for step in part.program.steps
        if step.name in part.edges
    ]
    return scales[-1] if scales else None


def warn_of_collapse(
    result: Result, work: nn.Module, watches: Mapping[str, Sequence[Watch]], engine: Engine
) -> None:
    """Warn where the outputs collapsed, and name the value between two steps that suffers most.

    work: the float model of the programs that are watched.
    """
    sqnr = result.summary.sqnr
    if sqnr is None or sqnr >= COLLAPSE:
        return
    noisy = sorted(_noisy(result, work, watches, engine))
    worst = f" The worst value is that of {noisy[0][1]}, at {noisy[0][0]:.1f} dB." if noisy else ""
    warnings.warn(
        f"the quantized model is at {sqnr:.1f} dB of the float one, which is a collapse.{worst} "
        "Keep that layer in float with hs.Rule(match, keep_float=True), try another observer or "
        "dynamic_int8(), and see hs.sensitivity",
        HalfstepWarning,
        stacklevel=3,
    )


def _noisy(
    result: Result, work: nn.Module, watches: Mapping[str, Sequence[Watch]], engine: Engine
) -> Iterator[tuple[float, str]]:
    """The SQNR of every value that is codes, with the layer that makes it."""
    for path, several in watches.items():
        modules = work.get_submodule(path), result.model.get_submodule(path)
        for watch, part in zip(several, result.parts[path], strict=True):
            if watch.example is None or not isinstance(part, Quantized):
                continue
            runnable = engine.plan(part, modules[1])
            found = edge_noise(part, watch.plan, runnable, modules, watch.example)
            yield from ((sqnr, watch.layer(name)) for name, sqnr in found.items())
