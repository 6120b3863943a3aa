"""Which value of the float program a step of the converted one stands for."""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value

# What convert adds to the name of a value: for its codes, and for the rows of a bag.
_ADDED = re.compile(r"^(?P<name>.+)_(?:q|bag)(?:_\d+)?$")
_INTO_CODES = ("int.quantize", "int.quantize_rows")


@dataclass(frozen=True)
class Brought:
    """A step of the converted program, and the float value that it stands for.

    name: of the value in the float program.
    is_conversion: whether the step only turns the value into codes or back.
    as_codes: whether the step brings codes of the value's edge.
    """

    step: Step
    name: str
    is_conversion: bool = False
    as_codes: bool = False

    def part_of(self, value: Any) -> Any:
        """What of the float value it stands for: of what a bag returns, the rows."""
        return value[0] if self.step.op == "int.embedding_bag" else value


def brought(program: Program, known: Container[str]) -> list[Brought]:
    """The steps of a converted program that stand for one of the ``known`` float values.

    >>> from halfstep.graph.brought import brought
    >>> from halfstep.graph.program import Program, Step
    >>> from halfstep.graph.trees import Branch, Value
    >>> steps = (Step("x_q", "int.quantize", (Value("x"),)), Step("y_q", "int.add"))
    >>> program = Program((), Branch(tuple, (), ()), (), steps)
    >>> [(each.name, each.is_conversion) for each in brought(program, {"x", "y"})]
    [('x', True), ('y', False)]
    """
    return [found for step in program.steps if (found := _found(step, known)) is not None]


def _found(step: Step, known: Container[str]) -> Brought | None:
    if step.op in _INTO_CODES:
        given = step.args[0]
        is_known = isinstance(given, Value) and given.name in known
        return Brought(step, given.name, is_conversion=True) if is_known else None
    if step.name in known:
        return Brought(step, step.name, is_conversion=step.op == "int.dequantize")
    parts = _ADDED.match(step.name)
    if parts is None or parts["name"] not in known:
        return None
    return Brought(step, parts["name"], as_codes=step.op != "int.embedding_bag")
