"""A quantized model on trial: what pieces of advice bring at its output, alone and together."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from halfstep.errors import ArgumentError, HalfstepWarning
from halfstep.flows.compare import Noise
from halfstep.flows.data import Data
from halfstep.flows.origin import Preparation
from halfstep.flows.parts import joined
from halfstep.flows.ptq import quantize
from halfstep.flows.ranking import noises
from halfstep.flows.result import Result
from halfstep.flows.search import variants_of
from halfstep.flows.variants import Variants, superseded
from halfstep.graph.matching import Matcher, only
from halfstep.report.ranges import RuleOf
from halfstep.report.records import Advice
from halfstep.spec import Rule
from halfstep.spec.recipe import Recipe


@dataclass
class Trials:
    """A quantized model, and what it becomes by the advice that was taken so far.

    data: its batches were kept.
    """

    variants: Variants
    data: Data
    rules: tuple[Rule, ...] = ()
    _sqnrs: dict[str, float] = field(default_factory=dict)
    _made: dict[str, Result] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """The recipe with the advice that was taken."""
        return superseded(self.variants.preparation, self.rules)

    @property
    def sqnr(self) -> float:
        """The SQNR of the output with the advice that was taken, on all data."""
        key = repr(self.recipe)
        if key not in self._sqnrs:
            noise, (variant,) = Noise(), self.variants.by([self.rules])
            for pair in self.data.run_kept(self.variants.model(variant), title="advising"):
                noise.add(*pair)
            self._sqnrs[key] = _of(noise)
        return self._sqnrs[key]

    def by_rules(self, several: Sequence[Advice]) -> list[float]:
        """The dB that the rules of each piece of advice bring, on a few samples."""
        if not several:
            return []
        rules = [self.rules, *(self._with_rules(one) for one in several)]
        base, *found = noises(self.variants, self.variants.by(rules), self.data)
        return [gained(_of(noise), _of(base)) for noise in found]

    def by_remedies(self, advice: Advice) -> float:
        """The dB that the remedies of a piece of advice bring.

        The model as it is counts with the better of its own ranges and those of this data, which
        the one with remedies has.
        """
        found = self._anew(self._with(advice))
        gain = gained(found, self.sqnr)
        if gain <= 0:  # it would not be more beside other ranges, which take long to find
            return gain
        return min(gain, gained(found, self._anew(self.recipe)))

    def treats(self, advice: Advice) -> bool:
        """Whether the remedies of a piece of advice do anything to its layer."""
        preparation = _preparation(self._result(self._with(advice)))
        done = (
            joined(part.path, step.source)
            for part in preparation.parts
            for step in part.program.steps
            if step.name in part.done
        )
        return advice.layer in done

    def take(self, advice: Advice) -> None:
        """Go on from the model with this advice."""
        if advice.remedies:
            recipe = self._with(advice)
            self.variants = variants_of(self._result(recipe), self.data)
            self.rules = ()
            self._sqnrs[repr(self.recipe)] = self._anew(recipe)
        else:
            self.rules = self._with_rules(advice)

    def _with_rules(self, advice: Advice) -> tuple[Rule, ...]:
        """The rules of advice before those that were taken, unless they are for the same."""
        matches = {rule.match for rule in advice.rules}
        return *advice.rules, *(rule for rule in self.rules if rule.match not in matches)

    def _with(self, advice: Advice) -> Recipe:
        return self.recipe.with_remedies(*advice.remedies)

    def _anew(self, recipe: Recipe) -> float:
        found = self._result(recipe).summary.sqnr
        return -math.inf if found is None or math.isnan(found) else found

    def _result(self, recipe: Recipe) -> Result:
        """The float model quantized anew, on the batches that were kept."""
        key = repr(recipe)
        if key not in self._made:
            preparation, data = self.variants.preparation, self.data
            batches = data.batches if data.is_function else [batch for batch, _ in data.kept]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HalfstepWarning)  # what would be said is measured
                self._made[key] = quantize(
                    preparation.original,
                    batches,
                    recipe,
                    forward=data.forward,
                    progress=False,
                    engine=preparation.order.engine,
                    check="none",
                )
        return self._made[key]


def gained(found: float, before: float) -> float:
    """The dB between two SQNRs; none between equal ones, also where both are infinite.

    >>> gained(30.0, 20.0), gained(-math.inf, -math.inf)
    (10.0, 0.0)
    """
    return 0.0 if found == before else found - before


def rules_of(preparation: Preparation) -> RuleOf:
    """Which rule of the recipe brings a value, written for the module of its operator alone."""
    matcher = Matcher(list(preparation.order.recipe), preparation.work)
    known = {
        joined(part.path, step.name): (step, part.path)
        for part in preparation.parts
        for step in part.program.steps
    }
    sources = {joined(path, step.source): None for step, path in known.values()}

    def rule(value: str) -> Rule | None:
        if value not in known:
            return None
        step, path = known[value]
        found = matcher.rule_for(step, path)
        match = only(joined(path, step.source), sources)
        return None if found is None else replace(found, match=match)

    return rule


def _preparation(result: Result) -> Preparation:
    assert result.preparation is not None  # noqa: S101  (it was not made in place)
    return result.preparation


def _of(noise: Noise) -> float:
    if noise.sqnr is None:
        raise ArgumentError("the model returns no float tensors, so there is nothing to compare")
    return -math.inf if math.isnan(noise.sqnr) else noise.sqnr
