"""How much a model gains from each of its layers in float, the others as they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from halfstep.flows.compare import Noise, floats
from halfstep.flows.data import Data
from halfstep.flows.preparation import sharing
from halfstep.flows.variants import Variant, Variants
from halfstep.graph.product import install
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Hook, Plan
from halfstep.graph.suffix import Suffixes, Version
from halfstep.graph.trees import Branch
from halfstep.spec import Capabilities

# Layers are put in order on as many samples; what is kept in the end is decided on all data.
_SAMPLES = 16
_TITLE = "searching"


def noises(variants: Variants, several: Sequence[Variant], data: Data) -> list[Noise]:
    """The noise at the output of each variant, on a few samples.

    A model that is one program runs once; at each layer where variants begin to differ from the
    first of them, they run on from there. Others run as a whole.
    """
    versions = [variants.version(variant) for variant in several]
    known = [version for version in versions if version is not None]
    if len(known) == len(several):
        return _by_suffix(variants, known, data)
    found = [Noise() for _ in several]
    for variant, noise in zip(several, found, strict=True):
        model = variants.model(variant)
        for pair in data.run_kept(model, title=_TITLE, samples=_SAMPLES):
            noise.add(*pair)
    return found


def _by_suffix(variants: Variants, versions: Sequence[Version], data: Data) -> list[Noise]:
    engine = _Ranking(versions, variants.preparation.work)
    model = sharing(variants.preparation.work)
    part = next(each.program() for each in variants.calibrated)
    install(model, {"": [part]}, engine)
    for _ in data.run_kept(model, title=_TITLE, samples=_SAMPLES):
        pass
    return engine.noises


class _Ranking:
    """An engine that runs the first of some versions, and notes the noise of all."""

    name = "ranking"

    def __init__(self, versions: Sequence[Version], work: nn.Module) -> None:
        self.capabilities = Capabilities(engine=self.name, integer_ops=frozenset(), dtypes=())
        self.suffixes = Suffixes(versions[0], versions[1:])
        self.noises = [Noise() for _ in versions]
        self.work = work

    def plan(self, quantized: Quantized, module: nn.Module) -> "_Ranked":
        """The float program, which the versions are compared with."""
        return _Ranked(self, quantized.program, Plan(quantized.program))

    def __deepcopy__(self, memo: dict[int, object]) -> "_Ranking":
        return self


@dataclass(frozen=True)
class _Ranked:
    ranking: _Ranking
    program: Program
    plan: Plan

    def takes(self, given: Branch) -> bool:
        """Whether the program is for arguments of this kind."""
        return self.plan.takes(given)

    def run(self, module: nn.Module, given: Branch, hook: Hook | None = None) -> Any:
        """What the first version returns."""
        expected = floats(self.plan.run(self.ranking.work, given))
        first, *others = self.ranking.noises
        found = self.ranking.suffixes.run(
            given, lambda place, output: others[place].add(expected, floats(output))
        )
        first.add(expected, floats(found))
        return found
