"""SmoothQuant of a program and of the parameters that it reads."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from halfstep.algorithms.smooth_quant.maths import largest_inputs, smoothing_factors
from halfstep.algorithms.smooth_quant.sites import Site, sites
from halfstep.graph.names import Names
from halfstep.graph.program import Program, Step
from halfstep.graph.revision import Revision
from halfstep.graph.run import find
from halfstep.graph.trees import Value, mapped

SMOOTHED = "smoothed"


def smoothed(
    program: Program,
    module: nn.Module,
    x_max: Mapping[str, Tensor],
    alpha: float,
    *,
    elsewhere: float | None = None,
    fixed: Collection[str] = (),
) -> Revision:
    """The program whose norms divide each channel by a factor that the linear layers multiply by.

    x_max: the largest magnitude of each channel, (C,), of the values that linear layers read, by
        name; one that is not in it stays as it is.
    elsewhere: the alpha of values that no norm brings, which get a multiplication of their own.

    It computes the same function, up to rounding; whoever else reads the value of such a norm gets
    it multiplied back. ``program`` is functional and normalized; ``fixed`` are the names of
    parameters that others read.

    >>> import torch
    >>> from halfstep.algorithms.smooth_quant import smoothed
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.normalize import normalized
    >>> model = torch.nn.Sequential(torch.nn.LayerNorm(2), torch.nn.Linear(2, 1, bias=False))
    >>> _ = model[1].weight.data.fill_(1.0)
    >>> program = normalized(export(model, (torch.ones(3, 2),)), model)
    >>> found = smoothed(program, model, {"layer_norm": torch.tensor([16.0, 1.0])}, 0.5)
    >>> found.weights["0.weight"], found.weights["1.weight"]
    (tensor([0.2500, 1.0000]), tensor([[4., 1.]]))
    """
    tensors = {**program.constants}
    tensors |= {name: find(module, path) for name, path in program.parameters.items()}
    refused: dict[str, str] = {}
    work = _Smoothing(program, tensors)
    for site in sites(program, tensors, fixed, refused, elsewhere=elsewhere is not None):
        chosen = alpha if site.weight is not None else elsewhere
        if chosen is not None and site.maker.name in x_max:
            work.smooth(site, x_max[site.maker.name], chosen)
    return work.result(refused)


class _Smoothing:
    """The steps by name, and what tensors have become so far."""

    def __init__(self, program: Program, tensors: Mapping[str, Tensor]) -> None:
        self.program, self.tensors = program, tensors
        self.names = Names.of(program)
        self.steps = {step.name: step for step in program.steps}
        self.after: dict[str, Step] = {}
        self.returned: dict[Value, Value] = {}
        self.changed: dict[str, Tensor] = {}
        self.added: dict[str, Tensor] = {}
        self.done: dict[str, str] = {}

    def smooth(self, site: Site, x_max: Tensor, alpha: float) -> None:
        """Smooth one value for its readers."""
        weights = [self.now(reader.args[1].name) for reader in site.readers]
        s = smoothing_factors(x_max.double().cpu(), largest_inputs(weights), alpha)
        like = self.tensors[site.readers[0].args[1].name]
        for name in filter(None, (site.weight, site.bias)):
            self.changed[name] = self.now(name) / s
        for reader, weight in zip(site.readers, weights, strict=True):
            self.changed[reader.args[1].name] = weight * s
        self.done |= dict.fromkeys((reader.name for reader in site.readers), SMOOTHED)
        if site.weight is None:
            self.multiply(site.maker, (1 / s).to(like), site.readers)
        elif site.others or site.is_returned:
            made = self.multiply(site.maker, s.to(like), site.others)
            if site.is_returned:
                self.returned[Value(site.maker.name)] = made

    def now(self, name: str) -> Tensor:
        """A tensor as it is so far, in float64."""
        known = self.changed.get(name)
        return self.tensors[name].detach().to("cpu", torch.float64) if known is None else known

    def multiply(self, maker: Step, factors: Tensor, readers: Iterable[Step]) -> Value:
        """Give some readers of a value its product with factors; return that."""
        factor, name = (self.names.fresh(f"{maker.name}_{word}") for word in ("factor", "scaled"))
        self.added[factor] = factors
        args = (Value(maker.name), Value(factor))
        self.after[maker.name] = Step(name, "aten.mul.Tensor", args, (), maker.source)
        same = {Value(maker.name): Value(name)}
        for reader in readers:
            step = self.steps[reader.name]
            given = mapped((step.args, step.kwargs), lambda leaf: _replaced(leaf, same))
            self.steps[reader.name] = replace(step, args=given[0], kwargs=given[1])
        return Value(name)

    def result(self, refused: Mapping[str, str]) -> Revision:
        """The program and the weights, each rounded once."""
        rounded = {name: value.to(self.tensors[name]) for name, value in self.changed.items()}
        constants = {**self.program.constants, **self.added}
        constants |= {name: value for name, value in rounded.items() if name in constants}
        steps = [
            each
            for name, step in self.steps.items()
            for each in (step, self.after.get(name))
            if each is not None
        ]
        outputs = mapped(self.program.outputs, lambda leaf: _replaced(leaf, self.returned))
        return Revision(
            replace(self.program, steps=tuple(steps), outputs=outputs, constants=constants),
            {name: value for name, value in rounded.items() if name in self.program.parameters},
            self.done,
            refused,
        )


def _replaced(leaf: object, same: Mapping[Value, Value]) -> object:
    return same.get(leaf, leaf) if isinstance(leaf, Value) else leaf
