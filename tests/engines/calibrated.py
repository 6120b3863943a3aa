"""Small models calibrated by hand: min and max of every value that placement asks for."""

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

import halfstep as hs
from halfstep.graph.capture import capture
from halfstep.graph.edges import Edge
from halfstep.graph.export import arguments
from halfstep.graph.fold import fold
from halfstep.graph.functional import functional
from halfstep.graph.matching import Matcher
from halfstep.graph.normalize import normalized
from halfstep.graph.place import Placement, place
from halfstep.graph.product import put
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import Plan, find
from halfstep.graph.trees import Branch, match
from halfstep.spec import Rule
from halfstep.spec.recipes import static_int8


@dataclass
class Calibrated:
    """A calibrated model, its copy with integer weights, and how forward is called."""

    quantized: Quantized
    module: nn.Module
    signature: inspect.Signature

    def given(self, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Branch:
        """The arguments of one call as a tree."""
        return arguments(self.signature, args, kwargs or {})


def in_float(model: nn.Module, args: Sequence[Any], kwargs: Any = None) -> Calibrated:
    """A captured model of which nothing is quantized."""
    module = copy.deepcopy(model)
    (program,) = capture(module, args, kwargs or {}).programs[""]
    program = normalized(functional(program, module).program, module)
    return Calibrated(Quantized(program), module, inspect.signature(model.forward))


def calibrated(
    model: nn.Module, *calls: Sequence[Any], rules: Sequence[Rule] | None = None
) -> Calibrated:
    """A model quantized as a recipe says, with ranges found on some calls."""
    plain = in_float(model, calls[0])
    program, module = _folded(plain.quantized.program, plain.module)
    rules = list(static_int8() if rules is None else rules)
    decided = place(program, module, Matcher(rules, module))
    seen = _observed(program, module, [plain.given(args) for args in calls])
    edges = _edges(decided, seen)
    shapes = {name: tuple(values[0].shape) for name, values in seen.items()}
    _put_integers(program, module, decided)
    quantized = Quantized(program, edges, decided.decisions, decided.weights, shapes)
    return replace(plain, quantized=quantized, module=module)


def _folded(program: Program, module: nn.Module) -> tuple[Program, nn.Module]:
    found = fold(program, module)
    for name, weight in found.weights.items():
        with torch.no_grad():
            find(module, program.parameters[name]).copy_(weight)
    return found.program, module


def _observed(program: Program, module: nn.Module, calls: list[Branch]) -> dict[str, list[Tensor]]:
    seen: dict[str, list[Tensor]] = {}

    def see(name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            seen.setdefault(name, []).append(value)

    for given in calls:
        for value, tensor in match(program.arguments, given):
            see(value.name, tensor)
        with torch.no_grad():
            Plan(program).run(module, given, lambda step, value: see(step.name, value) or value)
    return seen


def _edges(decided: Placement, seen: dict[str, list[Tensor]]) -> dict[str, Edge]:
    edges: dict[str, Edge] = {}
    for name, spec in decided.observe.items():
        q = hs.quantize(torch.cat([value.float().reshape(-1) for value in seen[name]]), spec)
        edges[name] = Edge(spec, float(q.scale), int(q.zero_point))
    for name in decided.shared:
        root = name
        while root in decided.shared:
            root = decided.shared[root]
        if root in edges:
            edges[name] = edges[root]
    return edges


def _put_integers(program: Program, module: nn.Module, decided: Placement) -> None:
    for name, spec in decided.weights.items():
        if name in program.constants:
            program.constants[name] = hs.quantize(program.constants[name], spec)
        elif not isinstance(find(module, program.parameters[name]), hs.QTensor):
            path = program.parameters[name]
            put(module, path, hs.quantize(find(module, path).detach(), spec))


def flat(output: Any) -> list[Tensor]:
    """The tensors and numbers of an output, dataclasses opened."""
    found = _pytree.tree_leaves(output)
    opened = [list(vars(leaf).values()) if hasattr(leaf, "score") else [leaf] for leaf in found]
    leaves = [leaf for group in opened for leaf in group]
    return [torch.as_tensor(leaf) for leaf in leaves if not isinstance(leaf, str | type(None))]
