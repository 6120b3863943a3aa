"""From rules to the layers of a model that they match."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.utils import parametrize

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.observe import Observer
from halfstep.spec import QDType, QSpec, Rule
from halfstep.spec.recipe import Recipe as NamedRecipe

Recipe: TypeAlias = NamedRecipe | Sequence[Rule] | Mapping[Any, Any] | Rule
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Layer:
    """A module of a model, the first of its names, and the rule that it falls under."""

    name: str
    module: nn.Module
    rule: Rule

    @property
    def title(self) -> str:
        """The name as shown to people; the model itself has none."""
        return self.name or "(the model itself)"


def as_rules(recipe: Recipe) -> list[Rule]:
    """The rules of a recipe: a list or Recipe of them, one, or a dict from match to what it gets.

    In a dict a format or a function means the weight, an observer the output.
    """
    if isinstance(recipe, Rule):
        return [recipe]
    if isinstance(recipe, Mapping):
        return [_short_rule(match, value) for match, value in recipe.items()]
    is_several = isinstance(recipe, list | tuple | NamedRecipe)
    rules: list[Any] = list(recipe) if is_several else [recipe]
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ArgumentTypeError(
                f"a recipe holds {rule!r}, which is no rule: give hs.Rule(match, weight=...), a "
                "dict such as {'conv1': hs.QSpec(hs.int8)}, or where a model is quantized a whole "
                "recipe such as hs.recipes.static_int8()"
            )
    return rules


def as_recipe(recipe: Recipe) -> NamedRecipe:
    """A recipe with a name; rules of one's own are "custom".

    Raises ``ArgumentTypeError`` for what is no rule, and ``ArgumentError`` where there is none.
    """
    if isinstance(recipe, NamedRecipe):
        return recipe
    rules = as_rules(recipe)
    if not rules:
        raise ArgumentError("the recipe is empty: give {match: spec}, or a list of rules")
    return NamedRecipe("custom", tuple(rules))


def _short_rule(match: Any, value: Any) -> Rule:
    if isinstance(value, Mapping):
        known = {field.name for field in fields(Rule)} - {"match"}
        if not known.issuperset(value):
            raise ArgumentError(
                f"the rule for {match!r} has {', '.join(map(repr, set(value) - known))}: "
                f"allowed are {', '.join(sorted(known))}"
            )
        return Rule(match, **value)
    observes = isinstance(value, Observer) or (
        isinstance(value, type) and issubclass(value, Observer)
    )
    return Rule(match, output=value) if observes else Rule(match, weight=value)


def as_target(value: Any, layer: str) -> Any:
    """What a slot of a rule gets: a QSpec, or the observer or function that was given."""
    if isinstance(value, QDType | torch.dtype):
        return QSpec(value)
    if isinstance(value, type) and issubclass(value, Observer):
        raise ArgumentTypeError(
            f"{layer} is to become the class {value.__name__}: give an observer, "
            f"{value.__name__}(spec), or a format beside observer={value.__name__}"
        )
    if isinstance(value, QSpec) or callable(value):
        return value
    raise ArgumentTypeError(
        f"{layer} is to become {value!r}: give a QSpec, an integer dtype, an observer, or a "
        "function from tensor to tensor"
    )


def find_layers(model: nn.Module, recipe: Recipe) -> list[Layer]:
    """The layers that a recipe matches, in the model's order, without those kept in float.

    Raises ``ArgumentError`` for a rule that matches nothing, with the nearest names.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    if hasattr(model, "_orig_mod"):
        raise ArgumentError(
            "the model is compiled, and compiled code sees no changes of its layers: give the "
            "model that was compiled, and compile again inside or afterwards"
        )
    rules = as_rules(recipe)
    if not rules:
        raise ArgumentError("the recipe is empty: give {match: spec}, or a list of rules")
    found: dict[nn.Module, Layer] = {}
    used: set[int] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        for place, rule in enumerate(rules):
            if _matches(rule.match, name, module):
                used.add(place)
                found.setdefault(module, Layer(name, module, rule))
                break
    for place, rule in enumerate(rules):
        if place not in used:
            raise ArgumentError(_unmatched(model, rule, rules[:place]))
    return [layer for layer in found.values() if not layer.rule.keep_float]


def _matches(match: Any, name: str, module: nn.Module) -> bool:
    """By name, glob, type or identity; a glob takes layers, not the containers around them."""
    if isinstance(match, str):
        if not _WILDCARDS & set(match):
            return match == name
        return _is_layer(module) and fnmatchcase(name, match)
    if isinstance(match, type):
        return isinstance(module, match)
    return match is module


def _is_layer(module: nn.Module) -> bool:
    """A module that computes: not a container, and not the maker of another module's weight."""
    if isinstance(module, parametrize.ParametrizationList):
        return False
    return not any(True for _ in module.children()) or bool(module._parameters)


def _unmatched(model: nn.Module, rule: Rule, earlier: Sequence[Rule]) -> str:
    modules = dict(model.named_modules(remove_duplicate=False))
    if any(_matches(rule.match, name, module) for name, module in modules.items()):
        return (
            f"the rule for {rule.match!r} is never reached: {list(earlier)} match its layers first"
        )
    if isinstance(rule.match, str):
        near = difflib.get_close_matches(rule.match, modules, n=3, cutoff=0.3)
        hint = f"the nearest names are {', '.join(near)}" if near else "see model.named_modules()"
    else:
        kinds = sorted({type(module).__name__ for module in modules.values()})
        hint = f"the model has {', '.join(kinds)}"
    what = rule.match.__name__ if isinstance(rule.match, type) else repr(rule.match)
    return f"{what} matches no layer of {type(model).__name__}: {hint}"
