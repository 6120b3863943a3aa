"""Kernels that versions of a program share."""

import torch

import halfstep as hs
from halfstep.graph.frozen import Bound, Lookup
from halfstep.graph.kernels import Kernels
from halfstep.graph.program import Step
from halfstep.graph.trees import Value


def test_tensors_are_the_same_where_their_bits_are() -> None:
    """Floats and quantized tensors alike; another format, dtype, shape or layout is another."""
    kernels, x = Kernels(), torch.randn(4, 4)
    q = hs.quantize(x, hs.int8)
    assert kernels.canonical(x) is kernels.canonical(x.clone()) is x
    assert kernels.canonical(q) is kernels.canonical(hs.quantize(x.clone(), hs.int8)) is q
    others = [
        hs.quantize(x, hs.QSpec(hs.int8, symmetric=True)),
        hs.quantize(2 * x, hs.int8),
        x.T,
        x.T.contiguous(),
        x.double(),
        x.flatten(),
    ]
    assert all(kernels.canonical(other) is other for other in others)


def test_a_kernel_is_chosen_once_for_a_step_and_its_tensors() -> None:
    """Asked again with an equal weight, the same; with another weight, another."""
    asked: list[torch.Tensor] = []

    def bind(step: Step, lookup: Lookup) -> Bound:
        asked.append(lookup(Value("w")))
        return Bound(torch.add, (Value("x"), len(asked)))

    step, weight = Step("y", "aten.add.Tensor", (Value("x"), Value("w"))), torch.ones(3)
    shared = Kernels().sharing(bind)
    bounds = [
        shared(step, lambda v, w=given: w if v.name == "w" else None)
        for given in (weight, weight.clone(), 2 * weight)
    ]
    assert bounds[0] is bounds[1] is not bounds[2]
    assert len(asked) == 2
