"""The captured parts of a model: their float programs, and what is decided of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from halfstep.graph.batched import batched
from halfstep.graph.capture import Captured
from halfstep.graph.functional import functional
from halfstep.graph.matching import Matcher
from halfstep.graph.normalize import normalized
from halfstep.graph.pads import pads_absorbed
from halfstep.graph.place import Placement, place
from halfstep.graph.program import Program
from halfstep.graph.quantized import Decision, Execution
from halfstep.spec.recipe import Recipe

READ_DIRECTLY = "attention reads the weight itself, and computes in float"


@dataclass(frozen=True)
class Part:
    """One program of the module at ``path``, and how its steps are to run.

    notes: why steps were left as they are, by name.
    gone: the batch norms that became part of other layers, by name, and of which.
    normed: the steps that do the work of such norms.
    done: what remedies did to the layers of steps, by name.
    factors: what the channels of quantized weights are multiplied by, by name.
    biases: the biases of the quantized model that are not the float model's, by path in the whole.
    fixed: why nothing of the program can run in integers, if so.
    runs: whether the module runs the program; where not, only its weights become integers.
    """

    path: str
    program: Program
    placement: Placement = field(default_factory=Placement)
    notes: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    normed: frozenset[str] = frozenset()
    done: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, Tensor] = field(default_factory=dict)
    biases: Mapping[str, Tensor] = field(default_factory=dict)
    fixed: str = ""
    runs: bool = True

    def at(self, value: str) -> str:
        """Where in the whole model the tensor of a parameter value is."""
        return joined(self.path, self.program.parameters[value])


def joined(*parts: str) -> str:
    """A path inside a module as a path in the whole model.

    >>> joined("", "fc", "weight")
    'fc.weight'
    """
    return ".".join(part for part in parts if part)


def drafts_of(model: nn.Module, captured: Captured) -> list[Part]:
    """The programs of a model, functional and normalized; nothing is decided yet."""
    return [
        normal(model, Part(path, program))
        for path, programs in captured.programs.items()
        for program in programs
    ]


def normal(model: nn.Module, part: Part) -> Part:
    """The part with its program functional and normalized, if that can be."""
    module = model.get_submodule(part.path)
    pure = functional(part.program, module)
    if pure.reasons:
        return replace(part, fixed=next(iter(pure.reasons.values())))
    return replace(part, program=batched(pads_absorbed(normalized(pure.program, module))))


def placed(model: nn.Module, parts: Iterable[Part], recipe: Recipe) -> list[Part]:
    """The parts, with what the recipe makes of their steps.

    Raises ``ArgumentError`` for a rule that matches nothing.
    """
    matcher = Matcher(list(recipe), model)
    found = [replace(part, placement=_placement(model, part, matcher)) for part in parts]
    matcher.check(recipe.defaults)
    return found


def _placement(model: nn.Module, part: Part, matcher: Matcher) -> Placement:
    decided = place(part.program, model.get_submodule(part.path), matcher, path=part.path)
    if not part.fixed:
        return decided if part.runs else _weights_only(decided)
    left = Decision(Execution.FLOAT, part.fixed)
    return Placement(dict.fromkeys(decided.decisions, left))


def _weights_only(decided: Placement) -> Placement:
    """The same weights as integers, for a module that reads them itself."""
    made = {
        name: Decision(Execution.WEIGHT_ONLY, READ_DIRECTLY, one.weight) if one.weight else one
        for name, one in decided.decisions.items()
    }
    return Placement(made, weights=decided.weights, weight_observers=decided.weight_observers)
