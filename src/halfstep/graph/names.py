"""Names that nothing in a program has yet."""

from halfstep.graph.program import Program


class Names:
    """The names of a program's values, and new ones beside them.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.names import Names
    >>> names = Names(export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> names.fresh("relu"), names.fresh("sum"), names.fresh("sum")
    ('relu_2', 'sum', 'sum_2')
    """

    def __init__(self, program: Program) -> None:
        self._taken = {given.value.name for given in program.inputs}
        self._taken.update(program.parameters, program.constants)
        self._taken.update(step.name for step in program.steps)

    def fresh(self, name: str) -> str:
        """The name, or the name with a number when it is taken."""
        wanted, count = name, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name
