"""Where a program can be smoothed: norms with a factor for each channel, and linear layers."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from halfstep.graph.flow import Flow
from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value

_LINEAR = "aten.linear.default"
# The places of weight and bias among their arguments.
_NORMS = {"aten.layer_norm.default": (2, 3), "aten.rms_norm.default": (2, None)}
_MUL = "aten.mul.Tensor"


@dataclass(frozen=True)
class Site:
    """A value that linear layers read.

    maker: what brings it. Of a norm, this is the step that multiplies each channel by a weight.
    weight, bias: the names of what a norm multiplies by and adds; no weight is of no norm.
    readers: the linear layers.
    others: the other steps that read the value; or the program returns it (is_returned).
    """

    maker: Step
    weight: str | None
    bias: str | None
    readers: tuple[Step, ...]
    others: tuple[Step, ...] = ()
    is_returned: bool = False


def sites(
    program: Program,
    tensors: Mapping[str, Tensor],
    fixed: Collection[str],
    refused: dict[str, str] | None = None,
    *,
    elsewhere: bool = False,
) -> Iterator[Site]:
    """The sites of a normalized program, in order: norms, and ``elsewhere`` other steps as well.

    tensors: the parameters and constants by name; fixed: those that others read.
    refused: is told why a step that linear layers read is no site, by its name.
    """
    flow = Flow(program)
    for step in program.steps:
        readers = [r for r in flow.readers[step.name] if _reads(r, step.name)]
        found = _factors(step, tensors) or ((None, None) if elsewhere else None)
        if not readers or found is None or step.name in flow.static:
            continue
        weight, bias = found
        names = [*filter(None, found), *(reader.args[1].name for reader in readers)]
        if reason := next(filter(None, (_reason(n, tensors, fixed, flow) for n in names)), ""):
            if refused is not None:
                refused[step.name] = reason
            continue
        others = tuple(r for r in flow.readers[step.name] if r not in readers)
        yield Site(step, weight, bias, tuple(readers), others, step.name in flow.returned)


def _reads(step: Step, name: str) -> bool:
    """Whether a linear layer takes the value as its input, and as nothing else."""
    return step.op == _LINEAR and [v.name for v in step.reads()].count(name) == 1 == (
        step.args[:1].count(Value(name))
    )


def _factors(step: Step, tensors: Mapping[str, Tensor]) -> tuple[str, str | None] | None:
    """What a step multiplies channels by, and what it adds."""
    if step.op in _NORMS:
        places = _NORMS[step.op]
        weight, bias = (None if at is None else step.args[at] for at in places)
        if weight is None or len(step.args[1]) != 1:
            return None
        return weight.name, None if bias is None else bias.name
    if step.op != _MUL:
        return None
    given = [value for value in step.args[:2] if isinstance(value, Value)]
    vectors = [v.name for v in given if v.name in tensors and tensors[v.name].ndim == 1]
    return (vectors[0], None) if len(given) == 2 and len(vectors) == 1 else None


def _reason(name: str, tensors: Mapping[str, Tensor], fixed: Collection[str], flow: Flow) -> str:
    """Why a weight cannot be replaced."""
    if name not in tensors:
        return f"the model computes {name}"
    return f"others share {name}" if name in fixed or len(flow.readers[name]) > 1 else ""
