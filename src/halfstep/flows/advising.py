"""Which pieces of advice help, found by measuring each, and the recipe that they come to."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from halfstep.errors import ArgumentError, HalfstepWarning
from halfstep.flows.compare import Noise
from halfstep.flows.data import Data
from halfstep.flows.origin import Preparation
from halfstep.flows.parts import joined
from halfstep.flows.progress import steps
from halfstep.flows.ptq import quantize
from halfstep.flows.ranking import noises
from halfstep.flows.result import Result
from halfstep.flows.variants import Variants
from halfstep.graph.matching import Matcher, only
from halfstep.report.advice import BIAS_OVERFLOW, RuleOf
from halfstep.report.records import Advice
from halfstep.spec import Rule
from halfstep.spec.recipe import Recipe

# What brings less, in dB at the output, is not worth a reader's time.
_LEAST = 0.5
# So many pieces of advice are shown at most, and so many are measured.
_SHOWN, _MEASURED = 8, 40
# So many dB more a layer in float has to bring than a remedy that keeps it in integers.
_LAST_RESORT = 3.0


@dataclass(frozen=True)
class Suggested:
    """The advice that helps, worst trouble first, and the recipe with it, measured.

    recipe and sqnr are None where nothing helps.
    """

    advice: tuple[Advice, ...] = ()
    recipe: Recipe | None = None
    sqnr: float | None = None


@dataclass
class Advising:
    """Pieces of advice for a quantized model, measured on data whose batches were kept."""

    variants: Variants
    data: Data
    _by_recipe: dict[str, float] = field(default_factory=dict)

    @property
    def preparation(self) -> Preparation:
        """The model as it is."""
        return self.variants.preparation

    @cached_property
    def base(self) -> float:
        """The SQNR of the output as it is."""
        return self.of_recipe(self.preparation.order.recipe)

    def suggested(self, candidates: Sequence[Advice]) -> Suggested:
        """What helps among the candidates, each beside those before it."""
        measured = self._best(self._measured(candidates[:_MEASURED]))
        helpful = [one for one in measured if one.harm >= _LEAST]
        chosen: list[Advice] = []
        recipe, reached = self.preparation.order.recipe, self.base
        for one in helpful:
            if len(chosen) == _SHOWN:
                break
            if one.cause == BIAS_OVERFLOW:
                chosen.append(one)
                continue
            sqnr = self.of_recipe(_with(recipe, one))
            if sqnr >= reached + _LEAST:
                recipe, reached = _with(recipe, one), sqnr
                chosen.append(one)
        if recipe is self.preparation.order.recipe:
            return Suggested(tuple(chosen))
        return Suggested(tuple(chosen), recipe, reached)

    def _measured(self, candidates: Sequence[Advice]) -> list[Advice]:
        """The candidates, each with the dB that it brings by itself."""
        by_rules = [one for one in candidates if one.rules]
        base, *sqnrs = self._sqnrs([(), *(one.rules for one in by_rules)])
        found = [
            replace(one, harm=max(one.harm, sqnr - base))
            for one, sqnr in zip(by_rules, sqnrs, strict=True)
        ]
        remedies = dict.fromkeys(remedy for one in candidates for remedy in one.remedies)
        every = steps(list(remedies), "advising", progress=self.data.progress)
        own = self.preparation.order.recipe
        gains = {one: self.of_recipe(own.with_remedies(one)) - self.base for one in every}
        found += [one for one in candidates if not one.rules and not one.remedies]
        found += [
            replace(one, harm=gains[one.remedies[0]])
            for one in candidates
            if one.remedies and not one.rules
        ]
        return sorted(found, key=_order)

    @staticmethod
    def _best(measured: Iterable[Advice]) -> list[Advice]:
        """Of what is said of one layer the best, and of one remedy the first."""
        kept: dict[object, Advice] = {}
        for one in measured:
            remedied = any(
                one.remedies and one.remedies == other.remedies for other in kept.values()
            )
            if not remedied:
                kept.setdefault((one.layer, one.cause == BIAS_OVERFLOW), one)
        return list(kept.values())

    def of_recipe(self, recipe: Recipe) -> float:
        """The SQNR of the model by another recipe, on all data."""
        key = repr(recipe)
        if key not in self._by_recipe:
            self._by_recipe[key] = self._of_recipe(recipe)
        return self._by_recipe[key]

    def _of_recipe(self, recipe: Recipe) -> float:
        own = self.preparation.order.recipe
        if recipe.remedies != own.remedies:
            found = quantized_by(recipe, self.preparation, self.data).summary.sqnr
            return -math.inf if found is None or math.isnan(found) else found
        rules = recipe.rules[: len(recipe.rules) - len(own.rules)]
        noise, (variant,) = Noise(), self.variants.by([rules])
        for pair in self.data.run_kept(self.variants.model(variant), title="advising"):
            noise.add(*pair)
        return _of(noise)

    def _sqnrs(self, several: Sequence[Sequence[Rule]]) -> list[float]:
        """The SQNR with each list of rules before the recipe's own."""
        found = noises(self.variants, self.variants.by(several), self.data)
        return [_of(noise) for noise in found]

    def rule_of(self) -> RuleOf:
        """Which rule of the recipe brings a value, written for the module of its operator alone."""
        matcher = Matcher(list(self.preparation.order.recipe), self.preparation.work)
        known = {
            joined(part.path, step.name): (step, part.path)
            for part in self.preparation.parts
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


def _of(noise: Noise) -> float:
    if noise.sqnr is None:
        raise ArgumentError("the model returns no float tensors, so there is nothing to compare")
    return -math.inf if math.isnan(noise.sqnr) else noise.sqnr


def _order(advice: Advice) -> float:
    """The most helpful first; a layer in float only where that brings clearly more."""
    is_kept = any(rule.keep_float for rule in advice.rules)
    return -advice.harm + _LAST_RESORT * is_kept


def _with(recipe: Recipe, advice: Advice) -> Recipe:
    """The recipe, with a piece of advice before its rules."""
    made = recipe.with_rules(*advice.rules) if advice.rules else recipe
    return made.with_remedies(*advice.remedies) if advice.remedies else made


def quantized_by(recipe: Recipe, preparation: Preparation, data: Data) -> Result:
    """The float model quantized anew by another recipe, on the batches that were kept."""
    batches = data.batches if data.is_function else [batch for batch, _ in data.kept]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfstepWarning)  # what would be said is measured
        return quantize(
            preparation.original,
            batches,
            recipe,
            forward=data.forward,
            progress=False,
            engine=preparation.order.engine,
            check="none",
        )
