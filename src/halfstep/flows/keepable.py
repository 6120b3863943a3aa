"""The layers of a model that may be kept in float, each with the rule that says so."""

from collections.abc import Iterable, Iterator

from halfstep.flows.parts import Part, joined
from halfstep.graph.kinds import Family, kind_of
from halfstep.graph.matching import only
from halfstep.graph.quantized import Decision, Execution
from halfstep.spec import Rule, uint16

# What only passes codes on makes no error of its own.
_EXACT = (Family.MOVE, Family.CLAMP)
_FLOAT = Decision(Execution.FLOAT)


def keepable(parts: Iterable[Part]) -> dict[str, Rule]:
    """For each layer that computes on integers the rule that keeps it in float, by what it matches.

    Where layers lie inside a module that computes itself too, as around a residual, the match is a
    glob for the module alone.

    >>> import halfstep as hs, torch
    >>> from halfstep.flows.keepable import keepable
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> keepable(hs.ptq.quantize(model).preparation.parts)["2"]
    Rule('2', keep_float=True)
    """
    found = dict.fromkeys(_integer(parts))
    matches = [only(source, found) for source in found]
    return {match: Rule(match, keep_float=True) for match in matches}


def widened(parts: Iterable[Part]) -> dict[str, Rule]:
    """For those of the layers that run with ranges found beforehand the rule for 16 bits.

    Their weights stay as they are, their activations are ``uint16``.
    """
    every = list(parts)
    sources = dict.fromkeys(_integer(every))
    found: dict[str, Rule] = {}
    for part in every:
        for step in part.program.steps:
            decision = part.placement.decisions.get(step.name, _FLOAT)
            source = joined(part.path, step.source)
            if source in sources and decision.execution is Execution.INTEGER:
                match = only(source, sources)
                weight = decision.weight or getattr(found.get(match), "weight", None)
                found[match] = Rule(match, weight=weight, input=uint16, output=uint16)
    return found


def _integer(parts: Iterable[Part]) -> Iterator[str]:
    """The modules whose steps round, in the order of execution."""
    for part in parts:
        for step in part.program.steps:
            kind = kind_of(step)
            decision = part.placement.decisions.get(step.name, _FLOAT)
            rounds = kind is not None and kind.family not in _EXACT
            if rounds and decision.execution is not Execution.FLOAT:
                yield joined(part.path, step.source)
