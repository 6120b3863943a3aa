"""Pairs of layers with nothing between them that minds a positive factor for each channel."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from halfstep.algorithms.cross_layer_equalization.maths import Layout
from halfstep.graph.flow import Flow
from halfstep.graph.kinds import Family, clamp_bounds, kind_of
from halfstep.graph.program import Program, Step
from halfstep.graph.ranks import ranks
from halfstep.graph.trees import Value

_LINEAR = "aten.linear.default"
_CONVOLUTIONS = {f"aten.conv{n}d.default": n for n in (1, 2, 3)}
_TRANSPOSED = {
    "aten.conv_transpose1d.default": 1,
    "aten.conv_transpose2d.input": 2,
    "aten.conv_transpose3d.input": 3,
}
_GROUPS_AT = {**dict.fromkeys(_CONVOLUTIONS, 6), **dict.fromkeys(_TRANSPOSED, 6)}
# Functions with f(s x) = s f(x) for s > 0.
_HOMOGENEOUS = ("relu", "leaky_relu", "prelu", "clone", "contiguous", "detach", "alias")
# The same, over the pixels of each channel.
_SPATIAL = (
    *(f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)),
    *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)),
    *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
)


@dataclass(frozen=True)
class Pair:
    """Two layers, and what is between them.

    repeat: how many inputs of the second layer belong to one channel of the first.
    """

    first: Step
    second: Step
    between: tuple[Step, ...] = ()
    repeat: int = 1

    @property
    def clamps(self) -> tuple[Step, ...]:
        """The steps between whose bounds have to be scaled."""
        return tuple(step for step in self.between if is_bounded(step))


def layout_of(step: Step) -> Layout:
    """Where the weight of a layer has its channels."""
    place = _GROUPS_AT.get(step.op)
    return Layout(1 if place is None else step.args[place], step.op in _TRANSPOSED)


def is_bounded(step: Step) -> bool:
    """Whether a step cuts off at other values than 0."""
    kind = kind_of(step)
    if kind is None or kind.family is not Family.CLAMP:
        return False
    return any(bound not in (None, 0.0) for bound in clamp_bounds(step))


class Pairs:
    """The pairs of a normalized program whose weights nobody else reads.

    tensors: the parameters and constants by name; fixed: those of them that may not change.
    refused: why a layer that has a neighbour is in no pair with it, by the name of its step.
    """

    def __init__(
        self, program: Program, tensors: Mapping[str, Tensor], fixed: Collection[str]
    ) -> None:
        self.flow, self.ranks = Flow(program), ranks(program)
        self.tensors, self.fixed = tensors, fixed
        self.refused: dict[str, str] = {}

    def __iter__(self) -> Iterator[Pair]:
        """From the first to the last."""
        for step in self.flow.program.steps:
            found = self._pair(step) if is_layer(step) else None
            reason = "" if found is None else self._reason(found)
            if reason:
                self.refused[step.name] = reason
            elif found is not None:
                yield found

    def _pair(self, first: Step) -> Pair | None:
        """The layer that follows, if one does."""
        between: list[Step] = []
        rank = self._rank(first)
        last, repeat = first, 1
        while (reader := self.flow.only_reader(last.name)) is not None:
            if reader.args[0] != Value(last.name):
                return None
            if is_layer(reader):
                return Pair(first, reader, tuple(between), self._repeat(first, reader, repeat))
            if not self._passes(reader, rank):
                return None
            if reader.op == "aten.flatten.using_ints":
                repeat = 0
            between.append(reader)
            last = reader
        return None

    def _rank(self, layer: Step) -> int:
        """How many dimensions a layer's value has, the channels second; 0 where they are last."""
        count = {**_CONVOLUTIONS, **_TRANSPOSED}.get(layer.op)
        known = self.ranks.get(layer.args[0].name)
        return 0 if count is None or known not in (None, count + 2) else count + 2

    def _passes(self, step: Step, rank: int) -> bool:
        """Whether a step keeps a factor for each channel; ``rank`` as of ``_rank``."""
        kind = kind_of(step)
        is_clamp = kind is not None and kind.family is Family.CLAMP
        if is_clamp or step.op.split(".")[1] in _HOMOGENEOUS:
            return True
        return rank > 0 and _keeps_channels(step, rank)

    def _repeat(self, first: Step, second: Step, repeat: int) -> int:
        """Of flattened pixels each is an input of its own."""
        if repeat:
            return repeat
        channels = _channels(self.tensors.get(first.args[1].name), layout_of(first))
        inputs = self.tensors.get(second.args[1].name)
        return 1 if inputs is None else max(1, inputs.shape[1] // max(channels, 1))

    def _reason(self, pair: Pair) -> str:
        """Why the weights of a pair stay as they are, or nothing."""
        for step in (pair.first, pair.second):
            given = [value for value in step.args[1:3] if isinstance(value, Value)]
            for value in given if step is pair.first else given[:1]:
                if why := self._reason_of(value.name):
                    return f"{why} of {step.source or step.name}"
        outputs = _channels(self.tensors[pair.first.args[1].name], layout_of(pair.first))
        if outputs * pair.repeat != _inputs(self.tensors[pair.second.args[1].name], pair.second):
            return f"its outputs are not the inputs of {pair.second.source or pair.second.name}"
        if pair.clamps and not self._rank(pair.first):
            return "the bounds behind a linear layer are one for all channels"
        return ""

    def _reason_of(self, name: str) -> str:
        """Why a weight or bias cannot be replaced."""
        if name not in self.tensors:
            return "the model computes a weight or bias"
        used_again = len(self.flow.readers[name]) > 1 or name in self.flow.returned
        return "others share a weight or bias" if used_again or name in self.fixed else ""


def _keeps_channels(step: Step, rank: int) -> bool:
    """Whether a step works on the pixels of each channel, the second of ``rank`` dimensions."""
    name = step.op.split(".")[1]
    if name == "flatten":
        return step.args[1:] in ((1,), (1, -1))
    if name == "constant_pad_nd":
        return step.args[2] == 0 and len(step.args[1]) <= 2 * (rank - 2)
    if name == "mean":
        return all(dim % rank >= 2 for dim in step.args[1] or (0,))
    return name in _SPATIAL


def is_layer(step: Step) -> bool:
    """Whether a step has a weight with channels on both sides."""
    return step.op == _LINEAR or step.op in _GROUPS_AT


def _channels(weight: Tensor | None, layout: Layout) -> int:
    """The outputs of a layer."""
    if weight is None:
        return 0
    return weight.shape[1] * layout.groups if layout.transposed else weight.shape[0]


def _inputs(weight: Tensor, step: Step) -> int:
    layout = layout_of(step)
    return weight.shape[0] if layout.transposed else weight.shape[1] * layout.groups
