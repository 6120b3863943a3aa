"""Steps that run as one: a contraction, the residual that is added to it, and its activation."""

from dataclasses import dataclass

from halfstep.graph.kinds import Family, clamp_bounds, kind_of
from halfstep.graph.program import Step
from halfstep.graph.support import Support
from halfstep.graph.trees import Value

_WITH_RESIDUAL = ("linear", "conv", "conv_transpose")
_WITH_ACTIVATION = (*_WITH_RESIDUAL, "add", "sub", "mul")


@dataclass(frozen=True)
class Region:
    """What runs as one step, in the place of its last.

    main: the step that is computed.
    name: the value that the region brings.
    residual: what is added to it.
    activation: the bounds between which the sum is kept.
    """

    main: Step
    name: str
    residual: Value | None = None
    activation: tuple[float | None, float | None] | None = None


def find_regions(support: Support) -> dict[str, Region]:
    """The region of every step that runs in integers, by the step's name."""
    found: dict[str, Region] = {}
    # Contractions first, then sums: they take in what follows them. From the end, so that of two
    # that are added the later takes the other as its residual.
    steps = [step for step in reversed(support.quantized.program.steps) if support.is_integer(step)]
    for step in sorted(steps, key=_rank):
        if step.name not in found:
            members, region = _grow(step, support, found)
            found |= dict.fromkeys(members, region)
    return found


def _rank(step: Step) -> int:
    kind = kind_of(step)
    name = "" if kind is None else kind.name
    return 0 if name in _WITH_RESIDUAL else 1 if name in _WITH_ACTIVATION else 2


def _grow(step: Step, support: Support, taken: dict[str, Region]) -> tuple[list[str], Region]:
    """The region that starts at a step, with the names of its steps."""
    kind = kind_of(step)
    name = "" if kind is None else kind.name
    members, residual, bounds = [step.name], None, None
    if name in _WITH_RESIDUAL and support.capabilities.fuses_residual:
        residual = _residual(step.name, support)
        members += [] if residual is None else [support.flow.readers[step.name][0].name]
    reader = support.flow.only_reader(members[-1])
    if name in _WITH_ACTIVATION and support.capabilities.fuses_activation and reader is not None:
        bounds = _bounds(reader, support)
        members += [] if bounds is None else [reader.name]
    if taken.keys() & set(members):
        return [step.name], Region(step, step.name)
    return members, Region(step, members[-1], residual, bounds)


def _residual(name: str, support: Support) -> Value | None:
    """What the one reader of a value adds to it, in the same shape; both known as codes."""
    reader = support.flow.only_reader(name)
    kind = None if reader is None else kind_of(reader)
    if reader is None or kind is None or kind.name != "add" or not support.is_integer(reader):
        return None
    others = [value for value in reader.args[:2] if value.name != name]
    shapes = support.quantized.shapes
    if len(others) != 1 or shapes.get(name) is None or shapes[name] != shapes.get(others[0].name):
        return None
    other: Value = others[0]
    return other


def _bounds(reader: Step, support: Support) -> tuple[float | None, float | None] | None:
    """The bounds of a step, if it is a clamp in integers."""
    kind = kind_of(reader)
    if kind is None or kind.family is not Family.CLAMP or not support.is_integer(reader):
        return None
    return clamp_bounds(reader)
