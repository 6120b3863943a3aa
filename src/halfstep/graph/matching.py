"""Which rule of a recipe a module or a step falls under."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from halfstep.errors import ArgumentError
from halfstep.graph.program import Step
from halfstep.spec import Rule

_WILDCARDS = frozenset("*?[")


class Matcher:
    """The rules of a recipe over one model; notes which of them matched something.

    A rule takes a step by the name or the glob of the module that it stems from or of one around
    it, by that module's type or the module itself, or by its operator.
    """

    def __init__(self, rules: Sequence[Rule], model: nn.Module) -> None:
        self.rules = tuple(rules)
        self.model = model
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.used: set[int] = set()

    def rule_for(self, step: Step, path: str = "") -> Rule | None:
        """The first rule that matches a step of the program of the module at ``path``."""
        source = ".".join(part for part in (path, step.source) if part)
        around = [(name, self.modules[name]) for name in _around(source) if name in self.modules]
        first = None
        for place, rule in enumerate(self.rules):
            if self._matches(rule.match, step, source, around):
                self.used.add(place)
                first = rule
                break
        return first

    def _matches(
        self, match: Any, step: Step, source: str, around: Iterable[tuple[str, nn.Module]]
    ) -> bool:
        if isinstance(match, str):
            if _WILDCARDS & set(match):
                return fnmatchcase(source, match)
            return source == match or source.startswith(f"{match}.")
        if isinstance(match, type):
            return any(isinstance(module, match) for _, module in around)
        if isinstance(match, nn.Module):
            return any(module is match for _, module in around)
        return step.op in operator_names(match)

    def check(self, optional: Iterable[Rule] = ()) -> None:
        """Raise ``ArgumentError`` for a rule that matched nothing; ``optional`` ones may."""
        allowed = set(map(id, optional))
        for place, rule in enumerate(self.rules):
            if place not in self.used and id(rule) not in allowed:
                raise ArgumentError(self._unmatched(rule))

    def _unmatched(self, rule: Rule) -> str:
        what = str(getattr(rule.match, "__name__", repr(rule.match)))
        if isinstance(rule.match, str):
            near = difflib.get_close_matches(rule.match, self.modules, n=3, cutoff=0.3)
            hint = f"the nearest names are {', '.join(near)}" if near else "see named_modules()"
        else:
            kinds = sorted({type(module).__name__ for module in self.modules.values()})
            hint = f"the model has {', '.join(kinds)}"
        if hasattr(rule.match, "overloads"):
            hint += "; add rules to a recipe by recipe + rule, whose own may match nothing"
        return (
            f"the rule for {what} matches nothing that {type(self.model).__name__} computes, or "
            f"earlier rules match it first: {hint}"
        )


def _around(source: str) -> Iterator[str]:
    """The names of a module and of those around it, outermost first."""
    yield ""
    parts = source.split(".") if source else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def only(source: str, sources: Iterable[str]) -> str:
    """What matches a module, and none of the layers inside it that are among ``sources``.

    >>> only("block", ["block", "block.conv"]), only("fc", ["block", "fc"])
    ('bloc[k]', 'fc')
    """
    if source and any(other.startswith(f"{source}.") for other in sources):
        return f"{source[:-1]}[{source[-1]}]"
    return source


def operator_names(match: Any) -> Mapping[str, None]:
    """The names in programs of a torch operator or function."""
    if hasattr(match, "overloads"):  # torch.ops.aten.add
        return dict.fromkeys(f"{match}.{overload}" for overload in match.overloads())
    text = str(match)
    if text.count(".") == 2 and hasattr(match, "_schema"):  # torch.ops.aten.add.Tensor
        return {text: None}
    packet = getattr(torch.ops.aten, getattr(match, "__name__", ""), None)
    return {} if packet is None else operator_names(packet)
