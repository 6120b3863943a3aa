"""Recipe: named rules, as data."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.spec.dtypes import QDType
from halfstep.spec.matches import class_at, match_from_dict, match_to_dict, path_of
from halfstep.spec.qspec import QSpec
from halfstep.spec.remedies import Remedy, checked, remedy_from_dict, remedy_to_dict
from halfstep.spec.rule import OBSERVERS, SLOTS, Rule

_FIELDS = {"match", *SLOTS, *OBSERVERS, "keep_float"}
_OBSERVER = "halfstep.observe.observer.Observer"


@dataclass(frozen=True, repr=False)
class Recipe:
    """Rules with a name: what becomes integers, and in which formats; the first that matches wins.

    name: for people.
    rules: each must match something of a model, or it is an error.
    defaults: for what no rule matches; they may match nothing.
    remedies: what is done for accuracy beside that, from ``hs.remedies``.

    A recipe is a sequence of its rules and defaults, prints as the Python that makes it, and is
    written to JSON. Raises ``ArgumentTypeError`` for what is no rule or no remedy.

    >>> import halfstep as hs
    >>> from halfstep.spec.recipe import Recipe
    >>> recipe = Recipe("mine", [hs.Rule("fc", weight=hs.int8)])
    >>> recipe
    Recipe('mine', [Rule('fc', weight=int8)])
    >>> Recipe.from_json(recipe.with_rules(hs.Rule("fc2", keep_float=True)).to_json())[0]
    Rule('fc2', keep_float=True)
    """

    name: str
    rules: tuple[Rule, ...] = ()
    defaults: tuple[Rule, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    def __post_init__(self) -> None:
        for field in ("rules", "defaults"):
            object.__setattr__(self, field, _checked(getattr(self, field)))
        object.__setattr__(self, "remedies", checked(self.remedies))
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"name={self.name!r} is no text: give the recipe a name")

    def with_rules(self, *rules: Rule) -> "Recipe":
        """The recipe with more rules, which come before its own.

        Raises ``ArgumentTypeError`` for what is no rule.
        """
        return replace(self, rules=(*rules, *self.rules))

    def with_remedies(self, *remedies: Remedy) -> "Recipe":
        """The recipe with more remedies; one of a kind that it has takes that one's place.

        Raises ``ArgumentTypeError`` for what is no remedy.

        >>> import halfstep as hs
        >>> hs.recipes.static_int8().with_remedies(hs.remedies.Smooth(0.7)).remedies
        (remedies.Smooth(alpha=0.7, elsewhere=None),)
        """
        kinds = set(map(type, remedies))
        kept = (remedy for remedy in self.remedies if type(remedy) not in kinds)
        return replace(self, remedies=(*kept, *remedies))

    def __add__(self, rules: "Rule | Recipe | list[Rule] | tuple[Rule, ...]") -> "Recipe":
        """The same as ``with_rules``: what is added decides first."""
        if isinstance(rules, Recipe):
            both = (*rules.defaults, *self.defaults)
            both_rules = (*rules.rules, *self.rules)
            return replace(self, rules=both_rules, defaults=both).with_remedies(*rules.remedies)
        return self.with_rules(*([rules] if isinstance(rules, Rule) else rules))

    def __iter__(self) -> Iterator[Rule]:
        return iter((*self.rules, *self.defaults))

    def __len__(self) -> int:
        return len(self.rules) + len(self.defaults)

    def __getitem__(self, place: int) -> Rule:
        return (*self.rules, *self.defaults)[place]

    def __repr__(self) -> str:
        parts = [repr(self.name)]
        parts += [repr(list(self.rules))] * bool(self.rules or not self.defaults)
        for field in ("defaults", "remedies"):
            given = getattr(self, field)
            parts += [f"{field}={list(given)}"] * bool(given)
        return f"Recipe({', '.join(parts)})"

    def __str__(self) -> str:
        lines = [f"Recipe({self.name!r}, ["]
        lines += [f"    {rule!r}," for rule in self.rules]
        if self.defaults:
            lines += ["], defaults=[", *(f"    {rule!r}," for rule in self.defaults)]
        if self.remedies:
            lines += ["], remedies=[", *(f"    {remedy!r}," for remedy in self.remedies)]
        return "\n".join([*lines, "])"])

    # --- As plain data -------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain data, for JSON and for files.

        Raises ``ArgumentTypeError`` for a rule with a module, a function or an observer object,
        which live in this process only.
        """
        plain: dict[str, Any] = {"name": self.name}
        for field in ("rules", "defaults"):
            plain[field] = [_rule_to_dict(rule) for rule in getattr(self, field)]
        if self.remedies:
            plain["remedies"] = [remedy_to_dict(remedy) for remedy in self.remedies]
        return plain

    @classmethod
    def from_dict(cls, plain: Any) -> "Recipe":
        """The recipe that ``to_dict`` wrote; classes are looked up, and nothing is imported.

        Raises ``ArgumentError`` for what is no such thing, and for a class that is not loaded.
        """
        lists: dict[str, Callable[[Any], Any]] = {
            "rules": _rule_from_dict,
            "defaults": _rule_from_dict,
            "remedies": remedy_from_dict,
        }
        if not isinstance(plain, Mapping) or not all(
            isinstance(plain.get(field, []), list) for field in lists
        ):
            raise ArgumentError(f"{plain!r} is no recipe: it needs a name and a list of rules")
        if unknown := set(plain) - {"name", *lists}:
            raise ArgumentError(
                f"a recipe with {', '.join(sorted(map(repr, unknown)))}: allowed are name, rules, "
                "defaults and remedies"
            )
        given: dict[str, Any] = {
            field: tuple(map(read, plain.get(field, []))) for field, read in lists.items()
        }
        return cls(plain.get("name", "custom"), **given)

    def to_json(self) -> str:
        """The recipe as JSON text. Raises as ``to_dict``."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """The recipe of JSON text. Raises as ``from_dict``, and for text that is no JSON."""
        try:
            plain = json.loads(text)
        except json.JSONDecodeError as error:
            raise ArgumentError(f"the recipe is no JSON: {error}") from None
        return cls.from_dict(plain)


def _checked(rules: Any) -> tuple[Rule, ...]:
    found: tuple[Any, ...] = (rules,) if isinstance(rules, Rule) else tuple(rules)
    for rule in found:
        if not isinstance(rule, Rule):
            raise ArgumentTypeError(
                f"a recipe holds {rule!r}, which is no rule: give hs.Rule(match, weight=...)"
            )
    return found


def _rule_to_dict(rule: Rule) -> dict[str, Any]:
    plain: dict[str, Any] = {"match": match_to_dict(rule.match)}
    for slot in SLOTS:
        value = getattr(rule, slot)
        if value is not None:
            plain[slot] = _format(value, rule).to_dict()
    for name in OBSERVERS:
        observer = getattr(rule, name)
        if observer is not None and not isinstance(observer, type):
            raise _unwritable(rule, name, observer)
        if observer is not None:
            plain[name] = path_of(observer)
    return plain | ({"keep_float": True} if rule.keep_float else {})


def _format(value: Any, rule: Rule) -> QSpec:
    if isinstance(value, QSpec):
        return value
    if isinstance(value, QDType | torch.dtype):
        return QSpec(value)
    raise _unwritable(rule, "format", value)


def _unwritable(rule: Rule, what: str, value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"the rule for {rule.match!r} has the {what} {value!r}, an object of this process, which "
        "cannot be written to JSON: give a QSpec or dtype, and a class for an observer"
    )


def _rule_from_dict(plain: Any) -> Rule:
    if not isinstance(plain, Mapping) or not _FIELDS.issuperset(plain) or "match" not in plain:
        raise ArgumentError(f"{plain!r} is no rule: allowed are {', '.join(sorted(_FIELDS))}")
    given = {slot: QSpec.from_dict(plain[slot]) for slot in SLOTS if slot in plain}
    keep = plain.get("keep_float", False)
    if not isinstance(keep, bool):
        raise ArgumentError(f"keep_float={keep!r} is not a bool: use true or false")
    observers = {name: _observer(plain[name]) for name in OBSERVERS if plain.get(name) is not None}
    return Rule(match_from_dict(plain["match"]), **given, **observers, keep_float=keep)


def _observer(path: Any) -> type:
    """Only a class of observer: it is going to be called."""
    found = class_at(path) if isinstance(path, str) else None
    if found is None or not issubclass(found, class_at(_OBSERVER)):
        raise ArgumentError(
            f"{path!r} is no observer: allowed is the path of an observer class, such as "
            "'halfstep.observe.histograms.HistogramObserver'"
        )
    return found
