"""What is measured of one captured program, while it runs beside its float form."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from halfstep.graph.kinds import kind_of
from halfstep.graph.lockstep import LockStep, Moment, Walkable
from halfstep.graph.trees import Branch
from halfstep.report.errors import error_between
from halfstep.report.layout import Layout, Operator
from halfstep.report.records import Error
from halfstep.report.split import Splitter
from halfstep.report.values import Activations
from halfstep.report.weights import Weights

_SLIDING = ("conv", "conv_transpose", "avg_pool", "max_pool", "adaptive_avg_pool")


class Tracker:
    """The errors, the splits and the statistics of a program's values, over all runs.

    plans: the float program and the converted one. modules: what they run over.
    is_plain: whether nothing of the program is quantized, so that no operator is quantized alone.
    """

    def __init__(
        self,
        layout: Layout,
        plans: tuple[Walkable, Walkable],
        modules: tuple[nn.Module, nn.Module],
        *,
        is_plain: bool,
    ) -> None:
        self.layout = layout
        self.weights = Weights(layout, modules)
        self.splitter = Splitter(layout, self.weights)
        self.local: dict[str, Error] = {}
        self.accumulated: dict[str, Error] = {}
        self.runs = 0
        self._modules, self._converted = modules, plans[1]
        self._operators = {each.name: each for each in layout.operators}
        self.activations = self._watched()
        self._seen: set[str] = set()
        measured = [each for each in layout.operators if each.is_measured]
        wanted = {each.name: self._moving(each.reads) for each in measured}
        edges = layout.part.edges
        self._steps = LockStep(*plans, edges, wanted=wanted, is_taught=not is_plain)

    def _moving(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.layout.flow.static]

    def _watched(self) -> dict[str, Activations]:
        """The values that are codes of an operator which computes, by name."""
        found: dict[str, Activations] = {}
        for each in filter(lambda each: each.is_measured, self.layout.operators):
            made = (each.name,) if each.as_codes else ()
            for name in (*each.takes, *made):
                edge = self.layout.edge(name)
                rows = None if edge is not None else each.decision.input
                if edge is not None or rows is not None:
                    found.setdefault(name, Activations(name, edge, rows, self._axis(name)))
        return found

    def _axis(self, name: str) -> int:
        """Where the channels of a value are: dimension 1 of images and signals, else the last."""
        flow = self.layout.flow
        around = [*flow.readers[name], *filter(None, [flow.maker.get(name)])]
        kinds = {kind.name for step in around if (kind := kind_of(step)) is not None}
        if kinds.intersection(_SLIDING):
            return 1
        shape = self.layout.part.shapes.get(name, ())
        return 1 if len(shape) > 3 and "linear" not in kinds else -1

    def run(self, given: Branch, noted: Branch | None) -> Any:
        """What the float program returns for ``given``; ``noted`` has the errors of before.

        Arguments that the quantized program does not take gather no errors.
        """
        self.runs += 1
        self._seen.clear()
        if noted is not None and not self._converted.takes(noted):
            noted = None
        return self._steps.run(self._modules, (given, noted), self._see)

    def _see(self, moment: Moment) -> None:
        name = moment.of.name
        if name in self.activations and name not in self._seen:
            self._seen.add(name)
            if isinstance(moment.expected, Tensor) and moment.expected.is_floating_point():
                self.activations[name].add(moment.expected)
        operator = self._operators.get(name)
        if operator is not None and not moment.of.is_conversion:
            self._compare(operator, moment)

    def _compare(self, operator: Operator, moment: Moment) -> None:
        _add(self.accumulated, operator.name, error_between(moment.expected, moment.found))
        if operator.is_measured and moment.local is not None:
            error = error_between(moment.expected, moment.local)
            _add(self.local, operator.name, error)
            if error is not None:
                self.splitter.add(operator, moment)


def _add(sums: dict[str, Error], name: str, error: Error | None) -> None:
    if error is not None:
        sums[name] = sums.get(name, Error()) + error
