"""Which scales the integer forms of operators take, and what to say of others."""

from halfstep.graph.kinds import Family, Kind
from halfstep.graph.program import Step
from halfstep.spec import PerChannel, PerGroup, PerTensor, PerToken, QSpec

# The axis of a weight that its outputs lie on.
_OUTPUTS = {"conv_transpose": 1}
_CONVOLUTIONS = ("conv", "conv_transpose")


def unserved(step: Step, kind: Kind, weight: QSpec, given: QSpec | None) -> str:
    """Why a step with a weight has no integer form under these formats; empty where it has one.

        y[o] = sum over i of qx[i] * qw[o, i], times sx * sw[o]

    needs scales that do not change inside the sum: for each output channel of the weight, and for
    each row (linear, recurrent) or sample (convolutions) of what it is given. A linear layer takes
    groups along its inputs too. In float, ``given=None``, all scales will do.

    >>> from halfstep.graph.kinds import kind_of
    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.scales import unserved
    >>> from halfstep.graph.trees import Value
    >>> from halfstep.spec import PerChannel, QSpec, int8, uint8
    >>> step = Step("y", "aten.conv_transpose2d.default", (Value("x"), Value("w"), None))
    >>> print(unserved(step, kind_of(step), QSpec(int8, PerChannel(0)), QSpec(uint8)))
    its sums need a weight with one scale, or PerChannel(axis=1): not PerChannel(axis=0)
    """
    if given is None or kind.family is Family.LOOKUP:
        return ""
    outputs = PerChannel(_OUTPUTS.get(kind.name, 0))
    has = weight.normalized(_dimensions(step)).granularity
    groups = isinstance(has, PerGroup) and has.axis == 1 and kind.name == "linear"
    if has not in (PerTensor(), outputs) and not groups:
        return f"its sums need a weight with one scale, or {outputs}: not {has}"
    return _unserved_rows(kind, given)


def _unserved_rows(kind: Kind, given: QSpec) -> str:
    rows = PerChannel(0) if kind.name in _CONVOLUTIONS else PerToken()
    if given.granularity in (PerTensor(), rows):
        return ""
    return f"its sums need an input with one scale, or {rows}: not {given.granularity}"


def _dimensions(step: Step) -> int:
    """The dimensions of the step's weight: those of a matrix, or two more than it slides along."""
    name = step.op.split(".")[1]
    return int(name[-2]) + 2 if name.startswith("conv") else 2
