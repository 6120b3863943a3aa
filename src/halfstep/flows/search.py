"""Which layers have to stay in float for a target to be met: the search, bound to a model."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from halfstep.algorithms.keep_float.maths import Found, ranked, shortest, softened
from halfstep.errors import ArgumentError, HalfstepWarning
from halfstep.flows.compare import Noise
from halfstep.flows.data import Data
from halfstep.flows.integers import integers_of
from halfstep.flows.keepable import keepable, widened
from halfstep.flows.preparation import Calibrated, finished
from halfstep.flows.ranking import noises
from halfstep.flows.result import Result
from halfstep.flows.target import Target
from halfstep.flows.variants import Variant, Variants
from halfstep.graph.quantized import Quantized
from halfstep.report.records import Kept
from halfstep.spec import Rule

# Rounding of sums in the scores themselves.
_TOLERANCE = 1e-9
# So many lists are measured at most.
_MOST = 100


@dataclass
class Search:
    """The search for the shortest list of layers which, kept in float, bring a model to a target.

    Layers are tried in the order of what each alone brings: the output's SQNR where there is data,
    else what ``evaluate`` says. What is kept is decided by the target alone, measured on the model
    quantized anew with just these layers in float.
    """

    variants: Variants
    target: Target
    _known: dict[tuple[frozenset[str], frozenset[str]], float] = field(default_factory=dict)

    @cached_property
    def rules(self) -> dict[str, Rule]:
        """The layers that may be kept."""
        return keepable(each.part for each in self.variants.calibrated)

    @cached_property
    def least(self) -> float:
        """What has to be measured."""
        if self.target.min_sqnr is not None:
            return self.target.min_sqnr
        best = self.target.score(self.variants.preparation.original, "the float model")
        return best - (self.target.max_drop or 0.0) - _TOLERANCE * abs(best)

    @cached_property
    def wide_rules(self) -> dict[str, Rule]:
        """The layers that may have 16 bits instead; none where that is not asked for."""
        return widened(each.part for each in self.variants.calibrated) if self.target.wide else {}

    def variant(self, layers: Sequence[str], wide: Sequence[str] = ()) -> Variant:
        """The model with these layers in float, but some of them in 16 bits."""
        rules = {**self.rules, **{name: self.wide_rules[name] for name in wide}}
        return self.variants.by([[rules[name] for name in layers]])[0]

    def measure(self, layers: Sequence[str], wide: Sequence[str] = ()) -> float:
        """What the target is about, with these layers in float, but some of them in 16 bits."""
        key = frozenset(layers), frozenset(wide)
        if key not in self._known:
            model = self.variants.model(self.variant(layers, wide))
            what = f"the model with {len(layers)} layers kept" if layers else "the quantized model"
            if self.target.min_sqnr is None:
                self._known[key] = self.target.score(model, what)
            else:
                noise = Noise()
                for pair in self._data().run_kept(model, title="searching"):
                    noise.add(*pair)
                self._known[key] = _sqnr(noise)
        return self._known[key]

    def run(self) -> tuple[Kept, Variant]:
        """The list, and the model with it."""
        everything = tuple(self.rules)
        if self.least <= self.measure(()) or self.measure(everything) < self.least:
            order: Sequence[str] = everything
        else:
            order = ranked(self._gains(), self._costs())
        found = shortest(order, self.measure, self.least, most=_MOST)
        wide = self._wide(found.members)
        return self._kept(found, wide), self.variant(found.members, wide)

    def _wide(self, members: Sequence[str]) -> tuple[str, ...]:
        """Those of the list for which 16 bits are enough."""
        can = [name for name in members if name in self.wide_rules]
        return softened(can, lambda wide: self.measure(members, wide), self.least)

    def _kept(self, found: Found, wide: tuple[str, ...]) -> Kept:
        return Kept(
            layers=found.members,
            wide=wide,
            target=str(self.target),
            reached=self.measure(found.members, wide) if wide else found.reached,
            is_met=found.is_met,
            bytes=self._saved(()) - self._saved(found.members, wide),
            values=found.values,
            before=found.before,
        )

    def _gains(self) -> dict[str, float]:
        """What is measured with each layer alone in float."""
        data = self.variants.data
        if data is not None and data.kept:
            several = self.variants.by([(), *([rule] for rule in self.rules.values())])
            _, *found = noises(self.variants, several, data)
            if all(noise.sqnr is not None for noise in found):
                pairs = zip(self.rules, found, strict=True)
                return {name: _sqnr(noise) for name, noise in pairs}
        return {name: self.measure((name,)) for name in self.rules}

    def _costs(self) -> dict[str, float]:
        """The bytes that each layer costs in float."""
        saved = self._saved(())
        return {name: saved - self._saved((name,)) for name in self.rules}

    def _saved(self, layers: Sequence[str], wide: Sequence[str] = ()) -> int:
        return self.variants.integers(self.variant(layers, wide)).saved()

    def _data(self) -> Data:
        data = self.variants.data
        if data is None or not data.kept:
            raise ArgumentError(
                "min_sqnr= is measured on the data: give batches, none of more than a gigabyte"
            )
        return data


def _sqnr(noise: Noise) -> float:
    if noise.sqnr is None:
        raise ArgumentError(
            "min_sqnr= compares float outputs of the same shape, and the model returns none: give "
            "evaluate= and max_drop="
        )
    return noise.sqnr


def reaching(variants: Variants, target: Target) -> tuple[Kept | None, Variant]:
    """The model with the layers in float that a target asks for; a warning where none suffice."""
    if not target.is_asked:
        return None, Variant(variants.preparation, tuple(variants.calibrated))
    search = Search(variants, target)
    kept, variant = search.run()
    if not kept.is_met:
        warnings.warn(
            f"{target} cannot be reached by keeping layers in float: the most that was measured, "
            f"up to all {len(search.rules)} of them kept, is {kept.reached:g}. None is kept, and "
            f"the model is at {kept.before:g}",
            HalfstepWarning,
            stacklevel=5,
        )
    return kept, variant


def variants_of(result: Result, data: Data | None = None) -> Variants:
    """What a result becomes by other rules.

    data: for ranges that the result did not need; its batches have to be kept.

    Raises ``ArgumentError`` for a result that no longer has its float model.
    """
    preparation = result.preparation
    if preparation is None:
        raise ArgumentError(
            "this result has no float model, which other rules start from: it was read from a file "
            "or made with inplace=True. Quantize the float model anew"
        )
    programs = {path: iter(several) for path, several in result.parts.items()}
    calibrated = []
    for part in preparation.parts:
        found = next(programs[part.path]) if part.runs else None
        known = (
            Calibrated(part, found.edges, found.shapes, found.dtypes)
            if isinstance(found, Quantized)
            else Calibrated(part)
        )
        calibrated.append(known)
    return Variants(preparation, calibrated, data)


def requantized(result: Result, rules: Sequence[Rule], data: Data | None = None) -> Result:
    """A result by other rules, which come before its recipe's own, without tracing it anew.

    Ranges are those that the result has; others are found on ``data``, whose batches have to be
    kept. Its summary holds the sizes only.

    Raises ``ArgumentError`` for a rule that matches nothing, for a result that no longer has its
    float model, and where a range is needed and there is no data to find it on.

    >>> import halfstep as hs, torch
    >>> from halfstep.flows.search import requantized
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> result = hs.ptq.quantize(model, torch.randn(64, 8))
    >>> requantized(result, [hs.Rule("2", keep_float=True)]).coverage.of("2")[0].runs
    'float'
    """
    variants = variants_of(result, data)
    (variant,) = variants.by([rules])
    preparation = variant.preparation
    own = {*integers_of(preparation.work, variants.preparation.parts).notes, *preparation.notes}
    notes = [note for note in result.coverage.notes if note not in own]
    made = finished(preparation, variant.calibrated, notes)
    return replace(made, again=result.again, preparation=preparation)
