"""Names that nothing in a program has yet."""

from collections.abc import Iterable

from halfstep.graph.program import Program


class Names:
    """Names that are taken, as those of a program's values, and new ones beside them.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.names import Names
    >>> names = Names.of(export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> names.fresh("relu"), names.fresh("sum"), names.fresh("sum")
    ('relu_2', 'sum', 'sum_2')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    @classmethod
    def of(cls, program: Program) -> "Names":
        """Those of a program's values."""
        names = cls(given.value.name for given in program.inputs)
        names._taken.update(program.parameters, program.constants)
        names._taken.update(step.name for step in program.steps)
        return names

    def fresh(self, name: str) -> str:
        """The name, or the name with a number when it is taken."""
        wanted, count = name, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name
