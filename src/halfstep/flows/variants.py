"""The same model by other rules: nothing is traced again, and no range is looked for twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.flows.data import Data
from halfstep.flows.integers import Integers, integers_of
from halfstep.flows.origin import Preparation
from halfstep.flows.parts import Part, placed
from halfstep.flows.preparation import Calibrated, put_together, sharing, with_corrections
from halfstep.flows.watch import Watch, observe, with_shared
from halfstep.graph.edges import Edge
from halfstep.graph.engine import Engine, Runnable
from halfstep.graph.frozen import Frozen
from halfstep.graph.kernels import Kernels
from halfstep.graph.matching import Matcher
from halfstep.graph.place import Placement
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import find
from halfstep.graph.suffix import Version
from halfstep.spec import Capabilities, QSpec, Rule
from halfstep.spec.recipe import Recipe
from halfstep.tensor import QTensor

# A value whose range is found: the place of its part, its name, its format, and by what.
_Wanted: TypeAlias = tuple[int, str, QSpec, Any]


@dataclass(frozen=True)
class Variant:
    """A model by other rules, ready to be finished."""

    preparation: Preparation
    calibrated: tuple[Calibrated, ...]


@dataclass
class Variants:
    """A calibrated model, and what it becomes by other rules.

    data: on which ranges are found that nobody needed before, as far as its batches were kept.
    """

    preparation: Preparation
    calibrated: Sequence[Calibrated]
    data: Data | None = None
    kernels: Kernels = field(default_factory=Kernels)
    _ranges: dict[_Wanted, Edge] = field(default_factory=dict)
    _weights: dict[Any, QTensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, each in enumerate(self.calibrated):
            for wanted in _wanted(place, each.part.placement):
                if wanted[1] in each.edges:
                    self._ranges[wanted] = each.edges[wanted[1]]

    def by(self, several: Iterable[Sequence[Rule]]) -> list[Variant]:
        """A variant for each list of rules, which come before the recipe's own.

        Raises ``ArgumentError`` for a rule that matches nothing, and where a range is needed that
        there is no data for.
        """
        work, parts = self.preparation.work, self.preparation.parts
        recipes = [superseded(self.preparation, rules) for rules in several]
        found = [(recipe, placed(work, parts, recipe)) for recipe in recipes]
        self._find({one for _, made in found for one in _wanted_of(made)} - self._ranges.keys())
        return [self._variant(recipe, made) for recipe, made in found]

    def _variant(self, recipe: Recipe, parts: Sequence[Part]) -> Variant:
        order = replace(self.preparation.order, recipe=recipe)
        calibrated = tuple(
            replace(each, part=part, edges=self._edges(place, part.placement))
            for place, (each, part) in enumerate(zip(self.calibrated, parts, strict=True))
        )
        return Variant(replace(self.preparation, order=order, parts=parts), calibrated)

    def _edges(self, place: int, placement: Placement) -> dict[str, Edge]:
        known = {one[1]: self._ranges[one] for one in _wanted(place, placement)}
        return with_shared(known, placement)

    def _find(self, missing: set[_Wanted]) -> None:
        """Observe the values whose range is not known; once for each format of a value."""
        while missing:
            now = list({one[:2]: one for one in missing}.values())
            for wanted, edge in self._observed(now):
                self._ranges[wanted] = edge
            missing -= set(now)

    def _observed(self, wanted: Sequence[_Wanted]) -> list[tuple[_Wanted, Edge]]:
        if self.data is None or not self.data.kept:
            raise ArgumentError(
                f"the range of {wanted[0][1]} is not known, and there is no data to find it on: "
                "quantize the float model anew with this recipe and batches"
            )
        watches = self._watches(wanted)
        return [(one, watches[one[0]].edges()[one[1]]) for one in wanted]

    def _watches(self, wanted: Sequence[_Wanted]) -> list[Watch]:
        """What has seen these values of all data that was kept."""
        parts = []
        for place, part in enumerate(self.preparation.parts):
            own = [one for one in wanted if one[0] == place]
            placement = Placement(
                observe={name: spec for _, name, spec, _ in own},
                observers={name: observer for _, name, _, observer in own},
            )
            parts.append(replace(part, placement=placement))
        model = sharing(self.preparation.work)
        watches = observe(model, parts)
        if self.data is not None:
            for _ in self.data.run_kept(model, title="calibrating"):
                pass
        return sorted(watches, key=lambda watch: parts.index(watch.part))

    # --- What runs -----------------------------------------------------------------------------

    def integers(self, variant: Variant) -> Integers:
        """The weights of a variant."""
        parts = [each.part for each in variant.calibrated]
        return integers_of(self.preparation.work, parts, self._weights)

    def model(self, variant: Variant) -> nn.Module:
        """A variant to be run and thrown away: it shares tensors and kernels with the others."""
        model, lenient = sharing(self.preparation.work), self.preparation.by_layer
        engine = _Sharing(self.preparation.order.engine, self.kernels)
        found, _ = with_corrections(variant.preparation, variant.calibrated)
        corrected = replace(variant, calibrated=tuple(found))
        put_together(model, self.integers(corrected), found, engine, lenient=lenient)
        return model

    def version(self, variant: Variant) -> Version | None:
        """A variant of a model that is one program; None for another, and for unknown engines."""
        integers = self.integers(variant)
        each = replace(variant.calibrated[0], part=integers.parts[0])
        part, program = each.part, each.program()
        if len(self.calibrated) > 1 or part.path or not part.runs:
            return None
        engine, work = self.preparation.order.engine, self.preparation.work
        if not isinstance(program, Quantized):
            return None
        plan = engine.plan(program, work)
        if not isinstance(plan, Frozen):
            return None
        tensors: dict[str, Tensor] = {
            name: integers.of(find(work, path)) for name, path in plan.program.parameters.items()
        }
        return Version(plan.program, tensors, self.kernels, plan.bind)


@dataclass(frozen=True)
class _Sharing:
    """An engine whose kernels are shared by all of its plans."""

    inner: Engine
    kernels: Kernels

    @property
    def name(self) -> str:
        """That of the engine."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """Those of the engine."""
        return self.inner.capabilities

    def plan(self, quantized: Quantized, module: nn.Module) -> Runnable:
        """The engine's plan, with kernels that are there already."""
        plan = self.inner.plan(quantized, module)
        if not isinstance(plan, Frozen) or plan.bind is None:
            return plan
        return Frozen(plan.program, self.kernels.sharing(plan.bind))

    def __deepcopy__(self, memo: dict[int, object]) -> "_Sharing":
        return self


def superseded(preparation: Preparation, rules: Sequence[Rule]) -> Recipe:
    """The recipe with rules before its own, of which those are left out that match nothing now."""
    recipe = preparation.order.recipe.with_rules(*rules)
    matcher = Matcher(list(recipe), preparation.work)
    for part in preparation.parts:
        for step in part.program.steps:
            matcher.rule_for(step, part.path)
    own = range(len(rules), len(recipe.rules))
    gone = {place for place in own if place not in matcher.used}
    kept = [rule for place, rule in enumerate(recipe.rules) if place not in gone]
    return replace(recipe, rules=tuple(kept))


def _wanted(place: int, placement: Placement) -> list[_Wanted]:
    return [
        (place, name, spec, placement.observers.get(name))
        for name, spec in placement.observe.items()
        if name not in placement.shared
    ]


def _wanted_of(parts: Sequence[Part]) -> list[_Wanted]:
    return [one for place, part in enumerate(parts) for one in _wanted(place, part.placement)]
