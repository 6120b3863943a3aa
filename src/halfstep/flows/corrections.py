"""Remedies after the ranges are known: what quantizing shifts is corrected in the quantized model.

The quantized program is simulated on what its float form was given while it was calibrated, all
batches together, from the first layer to the last; the float model stays as it is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.algorithms.batch_norm_reestimation import REESTIMATED, reestimated
from halfstep.algorithms.bias_correction import BIAS_CORRECTED, corrected
from halfstep.flows.data import MOST_BYTES
from halfstep.flows.integers import quantized_weight
from halfstep.flows.origin import Preparation
from halfstep.flows.parts import Part
from halfstep.flows.remedies import both, shared_names
from halfstep.graph.flow import Flow
from halfstep.graph.kinds import kind_of
from halfstep.graph.moments import Moments
from halfstep.graph.names import Names
from halfstep.graph.program import Step
from halfstep.graph.quantized import Quantized
from halfstep.graph.rehearsal import live_bytes, rehearse
from halfstep.graph.run import find
from halfstep.graph.simulated import simulated
from halfstep.graph.trees import Branch, Value
from halfstep.spec import PerChannel, PerGroup
from halfstep.spec.recipe import Recipe
from halfstep.spec.remedies import CorrectBias, ReestimateBatchNorm

# What has a bias, in the place of the third argument.
CORRECTED_LAYERS = ("linear", "conv", "conv_transpose")
_GROUPS_OF_TRANSPOSED = 6


def asks_for_inputs(recipe: Recipe) -> bool:
    """Whether what programs are given has to be kept while they are calibrated."""
    return any(isinstance(each, CorrectBias | ReestimateBatchNorm) for each in recipe.remedies)


@dataclass
class _Corrections:
    """What is corrected in one program, layer by layer.

    kinds: the remedies that are asked for.
    shared: the parameters that several steps of the model read.
    expected: the moments of the float layers; factors, biases: what was found, by the names of
        weights and of steps.
    """

    part: Part
    module: nn.Module
    kinds: Collection[type]
    shared: Collection[str]
    expected: dict[str, Moments] = field(default_factory=dict)
    factors: dict[str, Tensor] = field(default_factory=dict)
    biases: dict[str, Tensor] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)

    def run(
        self, quantized: Quantized, batches: Sequence[Branch], preparation: Preparation
    ) -> Part:
        """The part, corrected on these batches."""
        for batch in batches:
            rehearse(self.part.program, self.module, [batch], self._expect)
        weights = {name: self._weight(name) for name in self.part.placement.weights}
        capabilities = preparation.order.engine.capabilities
        program = simulated(quantized, weights, capabilities)
        rehearse(program, self.module, batches, self._correct)
        return self._corrected_part()

    def _weight(self, name: str) -> Tensor:
        placement = self.part.placement
        spec, observer = placement.weights[name], placement.weight_observers.get(name)
        w = self._tensor(name)
        return quantized_weight(w, spec, observer).floats().to(w.dtype)

    def _tensor(self, name: str) -> Tensor:
        constant = self.part.program.constants.get(name)
        return (
            find(self.module, self.part.program.parameters[name]) if constant is None else constant
        )

    def _axis(self, step: Step) -> int | None:
        """The channels of what a layer brings, if it is one with integers for its weight."""
        kind, decision = kind_of(step), self.part.placement.decisions.get(step.name)
        if (
            kind is None
            or kind.name not in CORRECTED_LAYERS
            or decision is None
            or decision.weight is None
        ):
            return None
        bias, program = step.args[2], self.part.program
        if bias is not None and not {bias.name} & (program.parameters.keys() | program.constants):
            return None  # the model computes it
        return -1 if kind.name == "linear" else -1 - len(step.args[3])  # its stride has all pixels

    def _expect(self, step: Step, values: list[Any]) -> list[Any]:
        """Note the moments of a float layer."""
        axis = self._axis(step)
        if axis is not None:
            found = Moments.of(values, axis)
            before = self.expected.get(step.name)
            self.expected[step.name] = found if before is None else before.merged(found)
        return values

    def _correct(self, step: Step, values: list[Any]) -> list[Any]:
        """Correct a layer, so that the next ones are given what it will bring."""
        axis = self._axis(step)
        if axis is None:
            return values
        expected = self.expected[step.name]
        given = step.args[2]
        bias = torch.zeros_like(expected.mean) if given is None else self._tensor(given.name)
        if ReestimateBatchNorm in self.kinds and self._takes_factors(step):
            values, factors, bias = reestimated(values, expected, bias, axis=axis)
            self.factors[step.args[1].name] = factors
            self.done[step.name] = REESTIMATED
        elif CorrectBias in self.kinds:
            values, bias = corrected(values, expected, bias, axis=axis)
            self.done[step.name] = BIAS_CORRECTED
        else:
            return values
        self.biases[step.name] = bias.to(values[0])
        return values

    def _takes_factors(self, step: Step) -> bool:
        """Whether a layer has a batch norm in it, and a scale or more for each output channel."""
        spec = self.part.placement.weights.get(step.args[1].name)
        if step.name not in self.part.normed or spec is None:
            return False
        granularity = spec.granularity
        if "transpose" in step.op:
            return granularity == PerChannel(1) and step.args[_GROUPS_OF_TRANSPOSED] == 1
        return granularity == PerChannel(0) or isinstance(granularity, PerGroup)

    def _corrected_part(self) -> Part:
        """The part with the new biases: as parameters where they are, else as constants."""
        program, flow = self.part.program, Flow(self.part.program)
        names, constants = Names.of(program), dict(program.constants)
        steps = {step.name: step for step in program.steps}
        paths: dict[str, Tensor] = {}
        for name, value in self.biases.items():
            step, old = steps[name], steps[name].args[2]
            is_own = old is not None and len(flow.readers[old.name]) == 1
            if is_own and old.name in constants:
                constants[old.name] = value
            elif is_own and old.name not in self.shared:
                paths[self.part.at(old.name)] = value
            else:
                made = names.fresh(f"{step.source or name}.bias_corrected")
                constants[made] = value
                steps[name] = replace(step, args=(*step.args[:2], Value(made), *step.args[3:]))
        return replace(
            self.part,
            program=replace(program, steps=tuple(steps.values()), constants=constants),
            factors=self.factors,
            biases=paths,
            done=both(self.part.done, self.done),
        )


def corrected_parts(
    preparation: Preparation, parts: Sequence[Part], programs: Sequence[Any]
) -> tuple[list[Part], list[str]]:
    """The parts by the remedies that correct the quantized model, and what is to be said.

    programs: the calibrated programs of the parts.
    """
    recipe, work = preparation.order.recipe, preparation.work
    if not asks_for_inputs(recipe):
        return list(parts), []
    kinds = {type(remedy) for remedy in recipe.remedies}
    found: list[Part] = []
    notes: list[str] = []
    places = {path: iter(several) for path, several in preparation.inputs.items()}
    for part, quantized in zip(parts, programs, strict=True):
        kept = next(places.get(part.path, iter(())), ())
        if not kept or not isinstance(quantized, Quantized):
            found.append(part)
            continue
        most = max(1, MOST_BYTES // (2 * live_bytes(part.program, quantized.shapes) or 1))
        if most < len(kept):
            notes.append(f"biases are corrected on {most} of {len(kept)} batches, as memory allows")
        shared = shared_names(work, part, preparation.parts)
        correcting = _Corrections(part, work.get_submodule(part.path), kinds, shared)
        found.append(correcting.run(quantized, kept[:most], preparation))
    return found, notes + _nothing_done(parts, found, kinds)


def _nothing_done(
    parts: Sequence[Part], found: Sequence[Part], kinds: Collection[type]
) -> list[str]:
    done = " ".join(text for part in found for text in part.done.values())
    hints = {
        CorrectBias: (BIAS_CORRECTED, "no layer with integers for its weight is left to it"),
        ReestimateBatchNorm: (
            REESTIMATED,
            "no batch norm was folded into a layer that has a scale for each output channel",
        ),
    }
    return [
        f"{kind.__name__} found nothing to do: {hint}"
        for kind, (word, hint) in hints.items()
        if kind in kinds and word not in done
    ]
