"""Which pieces of advice help, found by measuring each, and the recipe that they come to."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from halfstep.flows.progress import steps
from halfstep.flows.trials import Trials, gained
from halfstep.report.advice import MEANS
from halfstep.report.records import Advice
from halfstep.spec.recipe import Recipe

# What brings less, in dB at the output, is not worth a reader's time; nor is a layer in float.
_LEAST, _LEAST_KEPT = 0.5, 1.0
# From this SQNR of the output on no layer is advised to stay in float.
_FINE = 40.0
# What is wrong whatever the output shows is put right even if the output is so many dB worse.
_HARMLESS = -0.2
# So many pieces of advice are taken at most; so many are measured, and so many of them again
# beside those that were taken.
_TAKEN, _MEASURED, _AGAIN = 8, 40, 10

_NO_CURE = "No remedy helps here: keep what reads it in float, if its other channels matter"


@dataclass(frozen=True)
class Suggested:
    """The advice that helps, worst trouble first, and the recipe with it, measured.

    recipe and sqnr are None where nothing is to be changed.
    """

    advice: tuple[Advice, ...] = ()
    recipe: Recipe | None = None
    sqnr: float | None = None


@dataclass
class Advising:
    """Pieces of advice for a quantized model, each measured beside those that were taken before.

    What helps most is taken first; of what leaves a layer in integers at first, and layers in float
    only while the output is not fine without them.
    """

    trials: Trials
    _taken: list[Advice] = field(default_factory=list)

    def suggested(self, candidates: Sequence[Advice]) -> Suggested:
        """What helps among the candidates; those that have a harm are told in any case."""
        trials, own = self.trials, self.trials.recipe
        kept = [one for one in candidates if one.keeps_float]
        cures = [one for one in candidates if not one.keeps_float]
        self._take_best(_distinct(cures), _LEAST, lambda: True)
        self._take_best(kept, _LEAST_KEPT, lambda: trials.sqnr < _FINE)
        if trials.sqnr < _FINE and not {*MEANS.remedies} & {*own.remedies}:
            self._take(MEANS, self._gain(MEANS), _LEAST_KEPT)
        for one in candidates:
            if one.harm and not any(_is_same(one, other) for other in self._taken):
                self._tell(one)
        advice = tuple(sorted(self._taken, key=lambda one: -one.harm))
        if trials.recipe == own:
            return Suggested(advice)
        return Suggested(advice, trials.recipe, trials.sqnr)

    def _take_best(
        self, candidates: Sequence[Advice], least: float, is_wanted: Callable[[], bool]
    ) -> None:
        """Take what helps, the best first, and of what is said of one layer the best."""
        left = list(candidates[:_MEASURED])
        while left and len(self._taken) < _TAKEN and is_wanted():
            (_, best), *others = self._ranked(left)
            if not self._take(best, self._gain(best), least):
                return
            left = [one for _, one in others if one.layer != best.layer][:_AGAIN]

    def _ranked(self, candidates: Sequence[Advice]) -> list[tuple[float, Advice]]:
        """The candidates with the dB that each brings beside what was taken, the best first."""
        by_rules = [one for one in candidates if not one.remedies]
        by_remedies = [one for one in candidates if one.remedies]
        found = list(zip(self.trials.by_rules(by_rules), by_rules, strict=True))
        found += [(self.trials.by_remedies(one), one) for one in self._steps(by_remedies)]
        return sorted(found, key=_order)

    def _gain(self, advice: Advice) -> float:
        """The dB that a piece of advice brings, on all data."""
        if advice.remedies:
            return self.trials.by_remedies(advice)
        trial = replace(self.trials)
        trial.take(advice)
        return gained(trial.sqnr, self.trials.sqnr)

    def _steps(self, candidates: Sequence[Advice]) -> Iterable[Advice]:
        return steps(candidates, "advising", progress=self.trials.data.progress)

    def _tell(self, advice: Advice) -> None:
        """Take what is wrong whatever the output shows: its cure, too, if that does no harm."""
        is_reached = not advice.remedies or self.trials.treats(advice)
        if is_reached and self._take(advice, self._gain(advice), _HARMLESS):
            return
        if advice.layer not in {one.layer for one in self._taken}:  # else it is cured already
            self._taken.append(replace(advice, action=_NO_CURE, rules=(), remedies=()))

    def _take(self, advice: Advice, gain: float, least: float) -> bool:
        """Take a piece of advice that brings enough, and note what it brings."""
        if gain < least:
            return False
        self.trials.take(advice)
        self._taken.append(replace(advice, harm=max(advice.harm, gain)))
        return True


def _order(pair: tuple[float, Advice]) -> float:
    """The greatest gain first, from which each layer in float takes what it has to bring."""
    gain, advice = pair
    return _LEAST_KEPT * len(advice.rules) * advice.keeps_float - gain


def _distinct(cures: Iterable[Advice]) -> list[Advice]:
    """What can be done by itself, and of each remedy, which is for all layers, the first advice."""
    found: dict[object, Advice] = {}
    for one in cures:
        if one.rules or one.remedies:
            found.setdefault(one.remedies or (one.layer, one.rules), one)
    return list(found.values())


def _is_same(one: Advice, other: Advice) -> bool:
    return (one.layer, one.cause) == (other.layer, other.cause)
