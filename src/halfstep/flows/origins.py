"""The float model of a quantized one, traced anew where it is not at hand, and checked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.flows.compare import floats
from halfstep.flows.corrections import CORRECTED_LAYERS, asks_for_inputs
from halfstep.flows.coverage import Coverage
from halfstep.flows.data import Data
from halfstep.flows.order import is_ours, order
from halfstep.flows.origin import Preparation
from halfstep.flows.preparation import in_layers, sharing, traced
from halfstep.flows.result import Result, parts_of
from halfstep.flows.summary import Summary
from halfstep.graph.kinds import kind_of
from halfstep.graph.product import install
from halfstep.graph.program import Program, Step
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.graph.run import find
from halfstep.graph.trees import Value
from halfstep.report.measure import Pair
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import dynamic_int8


@dataclass(frozen=True)
class Origins:
    """A float model beside another form of it.

    preparation: the float model, traced. model: the other form.
    pairs: the programs of both.
    result: the quantized model with everything that is known of it: as it was given, or of a model
        whose recipe is known.
    """

    preparation: Preparation
    model: nn.Module
    pairs: tuple[Pair, ...]
    result: Result | None = None


def origins(
    model: nn.Module, other: Result | nn.Module, data: Data, recipe: Recipe | None = None
) -> Origins:
    """The float model and the programs of both; a result remembers them.

    recipe: what the other was made by, if it is no result.

    Raises ``ArgumentError`` that names the first difference, where one is no form of the other, and
    ``ArgumentTypeError`` for what is no model.
    """
    if not isinstance(other, Result | nn.Module):
        raise ArgumentTypeError(
            f"quantized is a {type(other).__name__}: give what hs.ptq.quantize returned, or a model"
        )
    if isinstance(other, Result) and other.preparation is not None:
        _check_state(model, other.preparation.original)
        _check_code(model, other.preparation.original, data)
        pairs = tuple(_pairs(other.preparation, other.model))
        return Origins(other.preparation, other.model, pairs, other)
    found = other.model if isinstance(other, Result) else other
    known = other.recipe if isinstance(other, Result) else recipe
    preparation = traced(model, order(model, known, has_data=True), data)
    if not any("forward" in vars(one) and is_ours(one) for one in found.modules()):
        plain = traced(found, order(found, known, has_data=True), data)
        return Origins(preparation, *_beside(preparation, plain))
    if not _paths(preparation) & parts_of(found).keys():  # its layers were quantized, without data
        preparation = in_layers(model, order(model, known or dynamic_int8(), has_data=False))
    pairs = tuple(_pairs(preparation, found))
    return Origins(preparation, found, pairs, _as_result(preparation, pairs, found))


def _paths(preparation: Preparation) -> set[str]:
    return {part.path for part in preparation.parts if part.runs}


def _as_result(preparation: Preparation, pairs: Sequence[Pair], model: nn.Module) -> Result | None:
    """A model that was read from a file as what made it; None where its recipe was another."""
    recipe = preparation.order.recipe
    decisions = [pair.quantized.decisions for pair in pairs]
    expected = [dict(part.placement.decisions) for part in preparation.parts]
    is_known = all(map(_agree, expected, decisions))
    if not is_known or asks_for_inputs(recipe):  # what the programs were given is not in a file
        return None
    summary = Summary(recipe=recipe.name, bytes_before=0, bytes_after=0)
    return Result(model, Coverage(), summary, recipe, preparation=preparation)


def _agree(expected: Mapping[str, Decision], found: Mapping[str, Decision]) -> bool:
    """Whether a recipe decides what is found; a program as it is has no decisions."""
    wanted = {name: one for name, one in expected.items() if one.execution is not Execution.FLOAT}
    given = {name: one for name, one in found.items() if one.execution is not Execution.FLOAT}
    return wanted.keys() == given.keys() and all(
        (one.execution, one.weight, one.input)
        == (given[name].execution, given[name].weight, given[name].input)
        for name, one in wanted.items()
    )


def _pairs(preparation: Preparation, model: nn.Module) -> Iterator[Pair]:
    """The float programs beside the quantized ones, in order."""
    remaining = {path: list(several) for path, several in parts_of(model).items()}
    for part in preparation.parts:
        if not part.runs:
            yield Pair(part.path, part.program, part.program, runs=False)
            continue
        if not remaining.get(part.path):
            raise ArgumentError(
                f"the float model computes {part.path or 'the whole model'} as a program, and the "
                "quantized one does not: it was quantized from another model"
            )
        quantized = remaining[part.path].pop(0)
        program = quantized.program if isinstance(quantized, Quantized) else quantized
        expected = with_biases(part.program, program, preparation.work.get_submodule(part.path))
        check_same(expected, program, part.path)
        yield Pair(part.path, expected, quantized)
    if left := [path for path, several in remaining.items() if several]:
        raise ArgumentError(
            f"the quantized model computes {left[0] or 'the whole model'} as a program, and the "
            "float one does not: it was quantized from another model"
        )


def _beside(one: Preparation, other: Preparation) -> tuple[nn.Module, tuple[Pair, ...]]:
    """Another float model that runs its programs, and the programs of both."""
    _check_paths(one, other)
    model, pairs = sharing(other.work), []
    programs: dict[str, list[Program]] = {}
    for part, twin in zip(one.parts, other.parts, strict=True):
        check_same(part.program, twin.program, part.path)
        programs.setdefault(part.path, []).append(twin.program)
        pairs.append(Pair(part.path, part.program, twin.program, runs=part.runs))
    install(model, programs)
    return model, tuple(pairs)


def with_biases(program: Program, found: Program, module: nn.Module) -> Program:
    """The float program with a bias in the places where remedies gave one to the quantized one.

    It is zero where the layer has none, and else what it was: a bias that other layers share.
    """
    given, constants = {step.name: step for step in found.steps}, dict(program.constants)

    def biased(step: Step) -> Step:
        kind, other = kind_of(step), given.get(step.name)
        if kind is None or kind.name not in CORRECTED_LAYERS or other is None:
            return step
        own, made = step.args[2], other.args[2]
        if made == own or not isinstance(made, Value) or made.name not in found.constants:
            return step
        zero = torch.zeros_like(found.constants[made.name])
        constants[made.name] = zero if own is None else _tensor(program, own.name, module)
        return replace(step, args=(*step.args[:2], made, *step.args[3:]))

    steps = tuple(biased(step) for step in program.steps)
    return replace(program, steps=steps, constants=constants)


def _tensor(program: Program, name: str, module: nn.Module) -> Tensor:
    known = program.constants.get(name)
    return find(module, program.parameters[name]).detach() if known is None else known


def check_same(expected: Program, found: Program, path: str = "") -> None:
    """Raise ``ArgumentError`` that shows the first step in which two programs differ."""
    lines = [str(program).splitlines()[1:] for program in (expected, found)]
    for place in range(max(map(len, lines))):
        one, other = (text[place].strip() if place < len(text) else "nothing" for text in lines)
        if one != other:
            raise ArgumentError(
                f"the models do not match{f' in {path}' if path else ''}: the float one has "
                f"`{one}` where the other has `{other}`. Give the model that it was quantized from"
            )


def _check_code(given: nn.Module, original: nn.Module, data: Data) -> None:
    """Raise ``ArgumentError`` that shows the first step that differs, where outputs do.

    Only then both are traced, which takes longer than to run them once.
    """
    if data.is_function:
        return
    one, other = (floats(data.run(model, data.first)) for model in (given, original))
    if len(one) == len(other) and all(map(torch.equal, one, other)):
        return
    found = [traced(model, order(model, None, has_data=True), data) for model in (given, original)]
    _check_paths(*found)
    for part, twin in zip(found[0].parts, found[1].parts, strict=True):
        check_same(part.program, twin.program, part.path)


def _check_paths(one: Preparation, other: Preparation) -> None:
    if [part.path for part in one.parts] != [part.path for part in other.parts]:
        raise ArgumentError("the two models compute other modules: one is no form of the other")


def _check_state(given: nn.Module, original: nn.Module) -> None:
    """Raise ``ArgumentError`` that names the first tensor in which two float models differ."""
    one, other = given.state_dict(), original.state_dict()
    for name in dict.fromkeys((*one, *other)):
        if name not in one or name not in other:
            owner = "given" if name in one else "quantized"
            raise ArgumentError(
                f"the float models do not match: only the one that was {owner} has {name}. Give "
                "the model that was quantized"
            )
        if one[name].shape != other[name].shape:
            raise ArgumentError(
                f"the float models do not match: {name} is {tuple(one[name].shape)}, and was "
                f"{tuple(other[name].shape)} when it was quantized"
            )
        if not torch.equal(one[name].to(other[name].device), other[name]):
            raise ArgumentError(
                f"the float models do not match: {name} has other values than when it was "
                "quantized. Give that model, or quantize this one"
            )
