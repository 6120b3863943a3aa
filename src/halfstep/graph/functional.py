"""Programs in which no step changes a value: what was changed in place is a new value.

Every value is a root (an input, a parameter, or what a step made) or is seen of a root through a
path of views. When a step changes a value, the root and all values seen of it are read anew from
then on: the changed part is written into the root, and views are taken again where they are needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import nn

from halfstep.graph.in_place import COPY, changes, is_mixed, is_mutable, twin_of, widens
from halfstep.graph.liveness import without_unread
from halfstep.graph.names import Names
from halfstep.graph.operators import GRAD_MODE, resolve
from halfstep.graph.program import Program, Step
from halfstep.graph.trees import Value, mapped
from halfstep.graph.views import GETITEM, View, item, may_share, view_of

Path: TypeAlias = tuple[View, ...]

_DETACH = "aten.detach_.default"
# Questions about a tensor that its numbers do not answer.
_SIZES = ("aten.sym_size.", "aten.sym_numel.", "aten.sym_stride.", "aten.sym_storage_offset.")


@dataclass(frozen=True, eq=False)
class Functional:
    """A functional program; or the program as it was, with the reason by the name of a step."""

    program: Program
    reasons: Mapping[str, str] = field(default_factory=dict)


def functional(program: Program, module: nn.Module | None = None) -> Functional:
    """The program with new values in place of changed ones; it computes the same bits.

    What the model changes of its inputs, parameters and buffers stays changed: the program ends
    with ``aten.copy_`` for each of them, after everything else. ``module`` tells the types of the
    parameters; without it they are taken to be no wider than those of the inputs.

    Where no such program is certain to be the same (a change through a view that has no inverse, or
    of memory that two values share or do not share, as strides are), the program is returned as it
    was, with the reasons.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.functional import functional
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         y = x + 1
    ...         y[0] = 3
    ...         return y
    >>> print(functional(export(Model(), (torch.ones(3, 2),))).program)
    program(x):
      lifted_tensor_0 = constant ()
      add = aten.add.Tensor(x, 1)
      lift_fresh_copy = aten.lift_fresh_copy.default(lifted_tensor_0)
      select = aten.select.int(add, 0, 0)
      fill_ = aten.fill.Tensor(select, lift_fresh_copy)
      add_2 = aten.select_scatter.default(add, fill_, 0, 0)
      return add_2
    """
    changing = list(changes(program))
    if not changing:
        return Functional(program)
    if program.training and any(step.op == GRAD_MODE for step in program.steps):
        reason = "it changes a value in place, which gradients may see, beside torch.no_grad()"
        return Functional(program, {step.name: reason for step in changing})
    work = _Rewriting(program, mixed=is_mixed(program, module))
    for step in program.steps:
        work.take(step)
    return work.result()


@dataclass
class _Memory:
    """A root: how it and what is seen of it are called now, by path.

    mates: the roots that may be the same memory, this one among them.
    blamed: the step after which it cannot be known any more, and why.
    """

    name: str
    now: dict[Path, Value]
    mates: list["_Memory"] = field(default_factory=list)
    blamed: tuple[str, str] | None = None


class _Rewriting:
    """The functional steps, and what every value of the given program is in them."""

    def __init__(self, program: Program, *, mixed: bool) -> None:
        self.program = program
        self.mixed = mixed
        self.names = Names.of(program)
        self.steps: list[Step] = []
        self.reasons: dict[str, str] = {}
        self.places: dict[str, tuple[_Memory, Path]] = {}
        self.items: dict[tuple[str, int], str] = {}
        self.owned = {given.value.name for given in program.inputs} | set(program.parameters)
        self.written: dict[str, _Memory] = {}
        for name in (*self.owned, *program.constants):
            self.root(name)

    def root(self, name: str) -> _Memory:
        """Memory of its own."""
        memory = _Memory(name, {(): Value(name)})
        memory.mates.append(memory)
        self.places[name] = (memory, ())
        return memory

    def take(self, step: Step) -> None:
        """Append what a step of the given program is in the new one."""
        view = view_of(step)
        if step.op == GETITEM and view is not None:
            self.take_item(step, step.args[0].name, step.args[1])
        elif view is not None:
            self.see(step, *self.places[step.args[0].name], (view,))
        elif step.op == _DETACH:
            detach = replace(step, op="aten.detach.default")
            self.see(detach, *self.places[step.args[0].name], (View(detach.op),))
        elif is_mutable(step.op):
            self.change(step)
        else:
            self.make(step)

    def make(self, step: Step) -> None:
        """A step that makes a value, or may return one of its arguments."""
        is_size = step.op.startswith(_SIZES)
        # A shape is the same before a change; then nothing has to be known of the change.
        self.steps.append(step if is_size else _with_values(step, self.read))
        memory = self.root(step.name)
        function = resolve(step.op)
        if isinstance(function, torch._ops.OpOverload) and may_share(step, function._schema):
            for value in step.reads():
                self.join(memory, self.places[value.name][0])

    def join(self, one: _Memory, other: _Memory) -> None:
        """Note that two roots may be the same memory."""
        if one.mates is not other.mates:
            one.mates.extend(other.mates)
            for each in other.mates:
                each.mates = one.mates

    def see(self, step: Step, memory: _Memory, path: Path, views: Path) -> None:
        """A step that is a view: it brings its value now, and again after a change."""
        self.steps.append(_with_values(step, self.read))
        self.places[step.name] = (memory, path + views)
        memory.now.setdefault(path + views, Value(step.name))

    def take_item(self, step: Step, several: str, index: Any) -> None:
        """One of several values: a part of a tensor that was cut, or a tensor of its own."""
        memory, path = self.places[several]
        if path:
            self.see(step, memory, path[:-1], item(path[-1], index))
            return
        self.steps.append(_with_values(step, self.read))
        first = self.items.setdefault((several, index), step.name)
        if first != step.name:
            self.places[step.name] = self.places[first]
            return
        own = self.root(step.name)
        if len(memory.mates) > 1:
            self.join(own, memory)

    def change(self, step: Step) -> None:
        """A step that changes its first argument: the same without the change, written back."""
        twin = twin_of(step)
        if twin is None:
            self.reasons[step.name] = f"{step.op} has no form that changes nothing in place"
            self.make(step)
            return
        memory, path = self.places[step.args[0].name]
        old = self.at(memory, path)
        self.compute(replace(_with_values(step, self.read), op=twin), old)
        self.places[step.name] = (memory, path)
        now, lost = self.write(memory, path, Value(step.name))
        for mate in memory.mates:
            mate.now = {}
            if mate is not memory:
                self.blame(mate, step, "may or may not share memory with what it changes in place")
        memory.now, memory.blamed = now, None
        if lost:
            self.blame(memory, step, f"is changed in place through {lost}")
        if memory.name in self.owned:
            self.written[memory.name] = memory
        elif memory.name in self.program.constants:
            self.reasons[step.name] = f"it changes the constant {memory.name}"

    def compute(self, step: Step, old: Value) -> None:
        """A step whose result has to be of the type of ``old``."""
        if not widens(step, mixed=self.mixed):
            self.steps.append(step)
            return
        name = self.names.fresh(step.name)
        self.steps.append(replace(step, name=name))
        self.steps.append(
            Step(step.name, "aten.type_as.default", (Value(name), old), (), step.source)
        )

    def write(self, memory: _Memory, path: Path, value: Value) -> tuple[dict[Path, Value], str]:
        """A new value written from the end of a path up to the root.

        What is known by path now, and the operator through which it was not written, if any.
        """
        now = {path: value}
        for depth in range(len(path) - 1, -1, -1):
            source, view = self.at(memory, path[:depth]), path[depth]
            step = view.written(source, value, self.names.fresh(source.name))
            if step is None:
                return now, view.op
            self.steps.append(step)
            value = now[path[:depth]] = Value(step.name)
        return now, ""

    def blame(self, memory: _Memory, step: Step, why: str) -> None:
        """Whoever reads the memory from now on cannot know it; the caller reads what it owns."""
        memory.blamed = (step.name, f"{memory.name} {why}")
        if memory.name in self.owned:
            self.reasons[step.name] = memory.blamed[1]

    def at(self, memory: _Memory, path: Path) -> Value:
        """What is seen of a root through a path, after the changes so far."""
        if path in memory.now:
            return memory.now[path]
        if not path:
            if memory.blamed is not None:
                self.reasons.setdefault(*memory.blamed)
            return Value(memory.name)
        source = self.at(memory, path[:-1])
        step = path[-1].of(source, self.names.fresh(source.name))
        self.steps.append(step)
        memory.now[path] = Value(step.name)
        return memory.now[path]

    def read(self, leaf: Any) -> Any:
        """An argument of the given program in the new one."""
        return self.at(*self.places[leaf.name]) if isinstance(leaf, Value) else leaf

    def result(self) -> Functional:
        """The new program, unless there are reasons against it."""
        outputs = mapped(self.program.outputs, self.read)
        for name, memory in self.written.items():
            step = Step(self.names.fresh(name), COPY, (Value(name), self.at(memory, ())))
            self.steps.append(step)
        if self.reasons:
            return Functional(self.program, self.reasons)
        return Functional(
            without_unread(replace(self.program, steps=tuple(self.steps), outputs=outputs))
        )


def _with_values(step: Step, read: Any) -> Step:
    kwargs = tuple((name, mapped(value, read)) for name, value in step.kwargs)
    return replace(step, args=mapped(step.args, read), kwargs=kwargs)
