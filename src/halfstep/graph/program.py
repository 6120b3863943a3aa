"""What a captured model is: a frozen list of steps, as plain data.

A program names its operators and torch's own names as text, so that it is printed, compared and
pickled without running anything. Values have one definition and are never assigned again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from halfstep.graph.sizes import Condition
from halfstep.graph.trees import Branch, Value, leaves, text


@dataclass(frozen=True)
class TorchName:
    """A dtype, layout, memory format or device of torch, by its name.

    >>> from halfstep.graph.program import TorchName
    >>> print(TorchName("dtype", "float32"))
    torch.float32
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "device" else f"torch.{self.name}"


@dataclass(frozen=True)
class Input:
    """A tensor that a program is given: its dtype, and how many dimensions it has; None for any."""

    value: Value
    dtype: str
    ndim: int | None


@dataclass(frozen=True)
class Step:
    """One operator and what it is called with.

        name = op(*args, **kwargs)        # of the module ``source``

    Arguments are numbers, text, None, ``TorchName``, ``Value``, ``Edge``, ``QSpec``, and tuples of
    those.

    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.trees import Value
    >>> print(Step("y", "aten.relu.default", (Value("x"),), (), "layer1.relu"))
    y = aten.relu.default(x)  # layer1.relu
    """

    name: str
    op: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    source: str = ""

    def reads(self) -> Iterator[Value]:
        """The values that the step needs, in order."""
        return (leaf for leaf in leaves((self.args, self.kwargs)) if isinstance(leaf, Value))

    def __str__(self) -> str:
        given = [text(value) for value in self.args]
        given += [f"{name}={text(value)}" for name, value in self.kwargs]
        source = f"  # {self.source}" if self.source else ""
        return f"{self.name} = {self.op}({', '.join(given)}){source}"


@dataclass(frozen=True, eq=False)
class Program:
    """Steps from inputs to outputs, over the parameters of a model that is given when it runs.

    ``parameters`` maps values to attribute paths in that model ("layer1.0.conv.weight"); buffers
    and plain tensor attributes are among them. ``constants`` are tensors that the model makes
    itself. ``arguments`` and ``outputs`` have the shape of what forward takes and returns, with a
    ``Value`` for each tensor. ``conditions`` are the sizes for which the steps are right.
    ``training`` is the mode in which the model was captured.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> print(export(torch.nn.Linear(2, 1), (torch.ones(3, 2),)))
    program(input):
      weight = parameter weight
      bias = parameter bias
      linear = aten.linear.default(input, weight, bias)
      return linear
    """

    inputs: tuple[Input, ...]
    arguments: Branch
    outputs: Any
    steps: tuple[Step, ...]
    parameters: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    training: bool = False

    @cached_property
    def last_use(self) -> tuple[tuple[str, ...], ...]:
        """For each step the names of values that nobody needs after it."""
        kept = {leaf.name for leaf in leaves(self.outputs) if isinstance(leaf, Value)}
        dying: list[tuple[str, ...]] = []
        for step in reversed(self.steps):
            names = dict.fromkeys([value.name for value in step.reads()] + [step.name])
            dying.append(tuple(name for name in names if name not in kept))
            kept.update(names)
        return tuple(reversed(dying))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Program":
        return self  # nothing in it ever changes

    def __str__(self) -> str:
        lines = [f"program({', '.join(given.value.name for given in self.inputs)}):"]
        lines += [f"{name} = parameter {path}" for name, path in self.parameters.items()]
        lines += [f"{name} = constant {tuple(v.shape)}" for name, v in self.constants.items()]
        lines += [*map(str, self.steps), f"return {text(self.outputs)}"]
        return "\n  ".join(lines)
