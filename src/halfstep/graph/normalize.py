"""Programs in which every step is written in one way."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import nn

from halfstep.graph.in_place import is_functional
from halfstep.graph.liveness import without_unread
from halfstep.graph.names import Names
from halfstep.graph.operators import resolve
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.run import find
from halfstep.graph.trees import Value, leaves, mapped

# The steps in place of one, given it, its arguments filled in; the last has its name.
_Rule: TypeAlias = Callable[["_Normalizing", Step], tuple[Step, ...]]

_DETACH = "aten.detach.default"
_LIFT = "aten.lift_fresh_copy.default"
_CONVOLUTIONS = {
    1: ("aten.conv1d.default", "aten.conv_transpose1d.default"),
    2: ("aten.conv2d.default", "aten.conv_transpose2d.input"),
    3: ("aten.conv3d.default", "aten.conv_transpose3d.input"),
}


def normalized(program: Program, module: nn.Module | None = None) -> Program:
    """The program with every operator's arguments complete, and one operator for each purpose.

    Of aten and halfstep operators all arguments are there, in the order of the schema, by place
    (``step.args``) or, where the schema takes them by name only, by name (``step.kwargs``). Lists
    have their full length: a stride of (1,) becomes (1, 1). A pool without a stride gets its kernel
    size. Convolutions are ``aten.conv{1,2,3}d.default``, ``aten.conv_transpose1d.default`` and
    ``aten.conv_transpose{2,3}d.input`` with numbers as padding; a "same" padding with unequal sides
    becomes a step ``aten.constant_pad_nd.default`` before it, as does ``aten.pad.default`` with a
    constant. ``aten.detach`` goes where nothing is trained, and copies of constants that nothing
    changes go, with all steps whose value nobody reads. The bits stay the same.

    ``module`` tells the sizes of weights; without it a padding "same" is left as it is.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> from halfstep.graph.normalize import normalized
    >>> model = torch.nn.Conv2d(1, 2, 3, padding="same")
    >>> program = export(model, (torch.ones(2, 1, 4, 4),))
    >>> print(program.steps[0])
    conv2d = aten.conv2d.padding(input, weight, bias, (1, 1), 'same')
    >>> print(normalized(program, model).steps[0])
    conv2d = aten.conv2d.default(input, weight, bias, (1, 1), (1, 1), (1, 1), 1)
    """
    work = _Normalizing(program, module)
    for step in program.steps:
        work.take(step)
    return work.result()


class _Normalizing:
    """The steps so far, and which values stand for others."""

    def __init__(self, program: Program, module: nn.Module | None) -> None:
        self.program = program
        self.module = module
        self.names = Names.of(program)
        self.steps: list[Step] = []
        self.same: dict[Value, Value] = {}
        self.outputs = set(leaves(program.outputs))
        self.is_functional = is_functional(program)

    def take(self, step: Step) -> None:
        """Append what a step becomes."""
        step = complete(self.renamed(step))
        if self.is_identity(step):
            self.same[Value(step.name)] = step.args[0]
            return
        rule = _RULES.get(step.op)
        self.steps.extend((step,) if rule is None else rule(self, step))

    def renamed(self, step: Step) -> Step:
        """The step with the values that stand for those it reads."""
        kwargs = tuple((name, mapped(value, self.current)) for name, value in step.kwargs)
        return replace(step, args=mapped(step.args, self.current), kwargs=kwargs)

    def current(self, leaf: Any) -> Any:
        """The value that stands for one."""
        return self.same.get(leaf, leaf) if isinstance(leaf, Value) else leaf

    def is_identity(self, step: Step) -> bool:
        """Whether a step hands its argument on, for all that anybody can see."""
        if step.op == _DETACH:
            return not self.program.training
        return step.op == _LIFT and self.is_functional and Value(step.name) not in self.outputs

    def sizes(self, value: Any) -> tuple[int, ...] | None:
        """The shape of a weight that the program is given."""
        if value.name in self.program.constants:
            return tuple(self.program.constants[value.name].shape)
        path = self.program.parameters.get(value.name)
        if self.module is None or path is None:
            return None
        return tuple(find(self.module, path).shape)

    def result(self) -> Program:
        """The program without what nobody reads."""
        outputs = mapped(self.program.outputs, self.current)
        return without_unread(replace(self.program, steps=tuple(self.steps), outputs=outputs))


def complete(step: Step) -> Step:
    """The step with all arguments of its operator, in order, lists at full length.

    >>> from halfstep.graph.normalize import complete
    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.trees import Value
    >>> print(complete(Step("y", "aten.max_pool2d.default", (Value("x"), (3,)))))
    y = aten.max_pool2d.default(x, (3, 3), (), (0, 0), (1, 1), False)
    """
    function = resolve(step.op)
    if not isinstance(function, torch._ops.OpOverload):
        return step
    if function.namespace not in ("aten", "halfstep"):
        return step
    by_name = dict(step.kwargs)
    args: list[Any] = []
    kwargs: list[tuple[str, Any]] = []
    for place, argument in enumerate(function._schema.arguments):
        given = step.args[place] if place < len(step.args) else by_name.get(argument.name, argument)
        value = _default(argument) if given is argument else _full(given, argument)
        if argument.kwarg_only:
            kwargs.append((argument.name, value))
        else:
            args.append(value)
    return replace(step, args=tuple(args), kwargs=tuple(kwargs))


def _default(argument: Any) -> Any:
    """What an operator takes when an argument is not given, as plain data."""
    value = argument.default_value
    kind = str(argument.real_type)
    if value is not None and "MemoryFormat" in kind:
        return TorchName("memory_format", "contiguous_format")  # the only one in any schema
    if value is not None and "ScalarType" in kind:
        return TorchName("dtype", "int64")  # the same
    return tuple(value) if isinstance(value, list) else value


def _full(value: Any, argument: Any) -> Any:
    """A list of numbers at the length that its operator makes of it."""
    if argument.N is None or isinstance(value, Value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,) * argument.N
    return value * argument.N if isinstance(value, tuple) and len(value) == 1 else value


def _pool(work: _Normalizing, step: Step) -> tuple[Step, ...]:
    """A pool whose stride is its kernel's size."""
    x, kernel, stride, *rest = step.args
    return (replace(step, args=(x, kernel, stride or kernel, *rest)),)


def _padded(work: _Normalizing, step: Step) -> tuple[Step, ...]:
    """Padding by name: with a constant by the operator for that."""
    x, pad, mode, value = step.args
    if mode != "constant":
        return (step,)
    fill = 0.0 if value is None else value
    return (replace(step, op="aten.constant_pad_nd.default", args=(x, pad, fill)),)


def _named_padding(work: _Normalizing, step: Step) -> tuple[Step, ...]:
    """A convolution whose padding is a word: as torch counts it, the odd one on the right."""
    x, weight, bias, stride, word, dilation, groups = step.args
    sizes = work.sizes(weight)
    op = step.op.replace(".padding", ".default")
    if word == "valid":
        args = (x, weight, bias, stride, (0,) * len(stride), dilation, groups)
        return (replace(step, op=op, args=args),)
    if sizes is None or set(stride) != {1}:
        return (step,)
    totals = [d * (size - 1) for d, size in zip(dilation, sizes[2:], strict=True)]
    left = tuple(total // 2 for total in totals)
    steps = tuple(_odd_side(work, step, totals))
    source = Value(steps[0].name) if steps else x
    args = (source, weight, bias, stride, left, dilation, groups)
    return (*steps, replace(step, op=op, args=args))


def _odd_side(work: _Normalizing, step: Step, totals: list[int]) -> Iterator[Step]:
    """The step that pads by one on the right where the sides of a padding differ."""
    odd = [total % 2 for total in reversed(totals)]
    if any(odd):
        pad = tuple(size for right in odd for size in (0, right))
        name = work.names.fresh(f"{step.name}_padded")
        args = (step.args[0], pad, 0)
        yield Step(name, "aten.constant_pad_nd.default", args, (), step.source)


def _convolution(work: _Normalizing, step: Step) -> tuple[Step, ...]:
    """The operator behind all convolutions: by the one for its dimensions and direction."""
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *_ = step.args
    sizes = work.sizes(weight)
    count = len(stride) if sizes is None else len(sizes) - 2
    if count not in _CONVOLUTIONS or (sizes is None and count == 1):
        return (step,)
    stride, padding, dilation, output_padding = (
        value * count if len(value) == 1 else value
        for value in (stride, padding, dilation, output_padding)
    )
    last = (output_padding, groups, dilation) if transposed else (dilation, groups)
    args = (x, weight, bias, stride, padding, *last)
    return (replace(step, op=_CONVOLUTIONS[count][transposed], args=args),)


_RULES: dict[str, _Rule] = {
    "aten.pad.default": _padded,
    "aten.convolution.default": _convolution,
    "aten._convolution.default": _convolution,
    "aten._convolution.deprecated": _convolution,
    **{f"aten.conv{n}d.padding": _named_padding for n in (1, 2, 3)},
    **{f"aten.{kind}_pool{n}d.default": _pool for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": _pool for n in (2, 3)},
    "aten.max_pool1d_with_indices.default": _pool,
}
