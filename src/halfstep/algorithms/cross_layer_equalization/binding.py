"""Cross-layer equalization of a program and of the parameters that it reads."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from halfstep.algorithms.cross_layer_equalization.maths import (
    equalizing_scale,
    ranges,
    scaled,
    within,
)
from halfstep.algorithms.cross_layer_equalization.pairs import Pair, Pairs, layout_of
from halfstep.graph.channel_clamp import CLAMP_CHANNELS
from halfstep.graph.kinds import clamp_bounds
from halfstep.graph.names import Names
from halfstep.graph.program import Program, Step
from halfstep.graph.revision import Revision
from halfstep.graph.run import find
from halfstep.graph.trees import Value

# Scales of neighbouring pairs depend on one another; they settle within some ten rounds.
_MOST_ROUNDS = 100
_SETTLED = 1e-4
EQUALIZED = "equalized"


def equalized(
    program: Program,
    module: nn.Module,
    *,
    limit: float | None = None,
    fixed: Collection[str] = (),
) -> Revision:
    """The program with equal weight ranges on both sides of each channel between two layers.

    It computes the same function, up to rounding: factors pass whatever is linear in them, and the
    bounds of a clamp get one for each channel. ``program`` is functional and normalized; ``fixed``
    are the names of parameters that others read, whose layers stay as they are. ``limit`` is that
    of the scales behind a clamp, where ranges are then no longer equal.

    >>> import torch
    >>> from halfstep.algorithms.cross_layer_equalization import equalized
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.normalize import normalized
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[100.0, 1.0], [0.5, 1.0]]))
    >>> found = equalized(normalized(export(model, (torch.ones(3, 2),)), model), model)
    >>> found.done
    {'linear': 'equalized', 'linear_1': 'equalized'}
    >>> first, second = found.weights["0.weight"], found.weights["2.weight"]
    >>> torch.allclose(first.abs().amax(1), second.abs().amax(0))
    True
    """
    tensors = {**program.constants}
    tensors |= {name: find(module, path) for name, path in program.parameters.items()}
    pairs = Pairs(program, tensors, fixed)
    work = _Equalizing(list(pairs), tensors, limit)
    work.settle()
    return work.result(program, pairs.refused)


class _Equalizing:
    """Pairs, the magnitudes of their weights as they are so far, and the scales that made them."""

    def __init__(self, pairs: list[Pair], tensors: dict[str, Tensor], limit: float | None) -> None:
        self.pairs, self.tensors, self.limit = pairs, tensors, limit
        weights = {s.args[1].name for pair in pairs for s in (pair.first, pair.second)}
        self.sizes = {name: _wide(tensors[name]).abs() for name in weights}
        self.scales: list[Tensor | None] = [None] * len(pairs)

    def settle(self) -> None:
        """Equalize all pairs until their scales stay."""
        for _ in range(_MOST_ROUNDS):
            moved = [self._equalize(place, pair) for place, pair in enumerate(self.pairs)]
            if max(moved, default=0.0) < _SETTLED:
                break

    def _equalize(self, place: int, pair: Pair) -> float:
        """One step of one pair; how far its scales went."""
        first, second = pair.first.args[1].name, pair.second.args[1].name
        layouts = layout_of(pair.first), layout_of(pair.second)
        r1 = ranges(self.sizes[first], layouts[0], of_outputs=True)
        r2 = ranges(self.sizes[second], layouts[1], of_outputs=False)
        s = equalizing_scale(r1, r2.reshape(-1, pair.repeat).amax(1))
        before = self.scales[place]
        total = s if before is None else before * s
        if pair.clamps and self.limit is not None:
            total = within(total, self.limit)
            s = total if before is None else total / before
        self.sizes[first] = scaled(self.sizes[first], 1 / s, layouts[0], of_outputs=True)
        wide = s.repeat_interleave(pair.repeat)
        self.sizes[second] = scaled(self.sizes[second], wide, layouts[1], of_outputs=False)
        self.scales[place] = total
        return float(s.log().abs().max())

    def result(self, program: Program, refused: dict[str, str]) -> Revision:
        """The program and the weights with the scales in them, each rounded once."""
        changed: dict[str, Tensor] = {}
        steps = {step.name: step for step in program.steps}
        names, constants = Names.of(program), dict(program.constants)
        for pair, s in zip(self.pairs, self.scales, strict=True):
            if s is None:
                continue
            self._scale(pair, s, changed)
            for clamp in pair.clamps:
                bounds = [names.fresh(f"{clamp.name}.{end}") for end in ("low", "high")]
                like = self.tensors[pair.first.args[1].name]
                found = (bound.to(like) for bound in _bounds(clamp, s))
                constants |= dict(zip(bounds, found, strict=True))
                args = (clamp.args[0], *map(Value, bounds))
                steps[clamp.name] = Step(clamp.name, CLAMP_CHANNELS, args, (), clamp.source)
        rounded = {name: value.to(self.tensors[name]) for name, value in changed.items()}
        constants |= {name: value for name, value in rounded.items() if name in constants}
        done = dict.fromkeys(
            (step.name for pair in self.pairs for step in (pair.first, pair.second)), EQUALIZED
        )
        return Revision(
            replace(program, steps=tuple(steps.values()), constants=constants),
            {name: value for name, value in rounded.items() if name in program.parameters},
            done,
            refused,
        )

    def _scale(self, pair: Pair, s: Tensor, changed: dict[str, Tensor]) -> None:
        """Put the scales of a pair into its weights and its bias, in float64."""
        first, bias, second = pair.first.args[1], pair.first.args[2], pair.second.args[1]
        for value in (first, bias, second):
            if value is not None and value.name not in changed:
                changed[value.name] = _wide(self.tensors[value.name])
        changed[first.name] = scaled(
            changed[first.name], 1 / s, layout_of(pair.first), of_outputs=True
        )
        if bias is not None:
            changed[bias.name] = changed[bias.name] / s
        wide = s.repeat_interleave(pair.repeat)
        changed[second.name] = scaled(
            changed[second.name], wide, layout_of(pair.second), of_outputs=False
        )


def _bounds(clamp: Step, s: Tensor) -> Iterable[Tensor]:
    """The bounds of a clamp behind channels that are divided by s; infinite where there is none."""
    ends = (-torch.inf, torch.inf)
    for bound, end in zip(clamp_bounds(clamp), ends, strict=True):
        yield torch.full_like(s, end) if bound is None else bound / s


def _wide(x: Tensor) -> Tensor:
    return x.detach().to("cpu", torch.float64)
