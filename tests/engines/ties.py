"""Quantized models and inputs whose numbers lie on the ties of rounding, and right beside them."""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from halfstep.engines.torch_engine import TorchEngine
from halfstep.graph.convert import convert
from halfstep.graph.edges import Edge
from halfstep.graph.export import arguments
from halfstep.graph.product import Forward, put
from halfstep.graph.program import Program
from halfstep.graph.quantized import Quantized
from halfstep.graph.run import find
from halfstep.graph.trees import match
from halfstep.tensor import QTensor
from tests.engines.twice import forwards

# Scales of edges are these times powers of two. With 1 every product of scales is exact, and so is
# every tie; with the others products are rounded, and sums fall beside ties as well.
ON = (1.0,)
BESIDE = (1.37, 1.91, 1.13)
_CONTRACTIONS = ("int.linear", "int.conv", "int.conv_transpose")


def snapped(model: nn.Module, mantissas: tuple[float, ...]) -> nn.Module:
    """A copy of a quantized model in which every second sum of products lies at a tie.

    For x of scale sx and a result of scale sy, weights are small integers of scale
    sw = sy / (2 sx), and biases are multiples of sx sw.
    """
    twin = copy.deepcopy(model)
    for forward in forwards(twin):
        forward.programs = [
            _snapped(part, forward.module, mantissas) if isinstance(part, Quantized) else part
            for part in forward.programs
        ]
    return twin


def _snapped(quantized: Quantized, module: nn.Module, mantissas: tuple[float, ...]) -> Quantized:
    scales = dict.fromkeys(edge.scale for edge in quantized.edges.values())
    near = {
        scale: _near(scale, mantissas[place % len(mantissas)]) for place, scale in enumerate(scales)
    }
    edges = {name: replace(e, scale=near[e.scale]) for name, e in quantized.edges.items()}
    moved = replace(quantized, edges=edges)
    for sums in _sums(convert(moved, TorchEngine().capabilities)):
        _put_on_ties(sums, module)
    return moved


def _near(scale: float, mantissa: float) -> float:
    """A float32 that is ``mantissa`` times a power of two."""
    return torch.tensor(mantissa).item() * 2.0 ** round(math.log2(scale / mantissa))


class Sums(NamedTuple):
    """A step that sums products: the formats around it, and where its weight and bias are."""

    x: Edge
    out: Edge | None
    weight: str
    bias: str | None


def _sums(program: Program) -> Iterator[Sums]:
    """The contractions whose weights are parameters; the first for every weight."""
    paths = program.parameters
    seen: set[str] = set()
    for step in program.steps:
        if step.op not in _CONTRACTIONS or step.args[2].name not in paths:
            continue
        _, x, weight, bias, *rest = step.args
        if weight.name not in seen:
            seen.add(weight.name)
            yield Sums(x, rest[-1], paths[weight.name], bias and paths.get(bias.name))


def _put_on_ties(sums: Sums, module: nn.Module) -> None:
    w = find(module, sums.weight)
    assert isinstance(w, QTensor)
    sy = _near(1.0, 1.0) if sums.out is None else sums.out.scale
    sw = float(torch.tensor(sy / (2 * sums.x.scale)))
    ints = w.int_repr().to(torch.int32).remainder(4).sub(1).clamp(-1, 1).to(w.int_repr().dtype)
    scale = torch.full_like(w.scale, sw)
    put(module, sums.weight, QTensor.from_parts(ints, scale, w.zero_point, w.spec))
    if sums.bias is not None:
        unit = sums.x.scale * sw
        put(module, sums.bias, (find(module, sums.bias) / unit).round() * unit)


def on_half_steps(model: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments of the same shapes whose floats are multiples of half a step of their format.

    Without a format, every row has values from -64 to 191, so that a scale found for it is 1.
    """
    scales = _scales_of_inputs(model, args, kwargs)
    generator = torch.Generator().manual_seed(1)

    def moved(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        half = torch.randint(-40, 41, x.shape, generator=generator) / 2
        if id(x) in scales:
            return half * scales[id(x)]
        if half.shape[-1] > 1:
            half[..., 0], half[..., -1] = -64, 191
        return half

    moved_args, moved_kwargs = _pytree.tree_map_only(Tensor, moved, (args, kwargs))
    return moved_args, moved_kwargs


def _scales_of_inputs(model: nn.Module, args: Any, kwargs: Any) -> dict[int, float]:
    """The scale of each argument that is quantized at once, by identity."""
    forward = vars(model).get("forward")
    if not isinstance(forward, Forward):
        return {}
    given = arguments(forward.__signature__, args, kwargs)
    scales: dict[int, float] = {}
    for part in forward.programs:
        if isinstance(part, Quantized) and part.edges:
            scales |= {
                id(tensor): part.edges[value.name].scale
                for value, tensor in match(part.program.arguments, given)
                if value.name in part.edges
            }
    return scales
