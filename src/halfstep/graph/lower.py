"""From torch's exported graph to a program."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument

from halfstep.errors import ArgumentError
from halfstep.graph import operators
from halfstep.graph.liveness import without_unread
from halfstep.graph.names import Names
from halfstep.graph.program import Input, Program, Step, TorchName
from halfstep.graph.sizes import Condition, at_least_two, parse
from halfstep.graph.trees import Branch, Value, mapped

_NO_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_COPY = "aten.lift_fresh_copy.default"
# Of (x, p, train), when train is False.
_DROPOUTS = {
    "aten.dropout.default",
    "aten.dropout_.default",
    "aten.alpha_dropout.default",
    "aten.alpha_dropout_.default",
    "aten.feature_alpha_dropout.default",
    "aten.feature_alpha_dropout_.default",
    "aten.feature_dropout.default",
    "aten.feature_dropout_.default",
}


class Returned:
    """What forward returned; no attribute of the module, since tracing sets those back."""

    tree: Any = None


class Flat(nn.Module):
    """The module that is exported: ``model`` as a function of tensors.

    ``tree`` has a value for each input, ``returned`` one named by its place for each output.
    ``prefix`` is what torch puts before the paths of ``model``.
    """

    prefix = "model."
    model: nn.Module
    tree: Branch
    returned: Returned


def lower(exported: ExportedProgram, flat: Flat, names: Sequence[str]) -> Program:
    """The program of an exported ``flat``, whose inputs are called ``names``."""
    work = _Lowering(flat, Names(names), is_functional=_is_functional(exported.graph_module))
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    waiting = iter(names)
    given: list[fx.Node] = []
    for node, spec in zip(placeholders, exported.graph_signature.input_specs, strict=True):
        if isinstance(spec.arg, ConstantArgument):
            work.values[node] = spec.arg.value
        elif spec.kind.name == "USER_INPUT":
            given.append(node)
            work.values[node] = Value(next(waiting))
        else:
            work.bind(node, spec.kind.name, str(spec.target), exported.constants)
    returned = work.graph(exported.graph_module)
    program = Program(
        inputs=tuple(_input(work.values[node], node) for node in given),
        arguments=flat.tree,
        outputs=mapped(
            flat.returned.tree, lambda v: returned[int(v.name)] if type(v) is Value else v
        ),
        steps=tuple(work.steps),
        parameters=work.parameters,
        constants=work.constants,
        conditions=tuple(dict.fromkeys(_conditions(exported, given))),
        training=flat.training,
    )
    return without_unread(program)


class _Lowering:
    """The steps of a graph and of the graphs inside it, in one list."""

    def __init__(self, flat: Flat, names: Names, *, is_functional: bool) -> None:
        self.names = names
        self.is_functional = is_functional
        self.copies: set[Value] = set()
        self.model, self.prefix = flat.model, flat.prefix
        self.paths = _paths(flat.model)
        self.values: dict[fx.Node, Any] = {}
        self.steps: list[Step] = []
        self.parameters: dict[str, str] = {}
        self.constants: dict[str, Tensor] = {}

    def bind(self, node: fx.Node, kind: str, target: str, constants: dict[str, Any]) -> None:
        """Give a parameter, a buffer or a constant its name; tied ones get the first."""
        if kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            raise ArgumentError(f"{target} is a {kind.lower()}, which has no place in a program")
        path = target.removeprefix(self.prefix)
        path = self.paths.get(id(_attribute(self.model, path)), path)
        known = {p: name for name, p in self.parameters.items()}
        if path in known:
            self.values[node] = Value(known[path])
            return
        name = self.names.fresh(path)
        self.values[node] = Value(name)
        if _attribute(self.model, path) is None:
            self.constants[name] = constants[target].detach()
        else:
            self.parameters[name] = path

    def graph(self, module: fx.GraphModule) -> tuple[Any, ...]:
        """Append the steps of a graph whose placeholders are bound; return its outputs."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = getattr(module, str(node.target))
            elif node.op == "call_function":
                self.values[node] = self.call(node)
            elif node.op == "output":
                returned: tuple[Any, ...] = self.argument(node.args[0])
                return returned
        raise ArgumentError("the exported graph has no output")

    def call(self, node: fx.Node) -> Any:
        """What a call brings: the value of a new step, or a value that is there."""
        if node.target is _NO_GRAD:
            return self.with_grad_mode(*node.args)
        args = self.argument(node.args)
        op = operators.name_of(node.target)
        if operators.is_check(op):
            return None
        if op == "operator.getitem" and isinstance(args[0], tuple):
            return args[0][args[1]]
        if self.changes_nothing(op, args):
            return args[0]
        name = self.names.fresh(node.name)
        if op == _COPY:
            self.copies.add(Value(name))
        kwargs = tuple((key, self.argument(value)) for key, value in node.kwargs.items())
        self.steps.append(Step(name, op, args, kwargs, self.source(node)))
        return Value(name)

    def changes_nothing(self, op: str, args: tuple[Any, ...]) -> bool:
        """Whether a call hands its first argument on."""
        if op in _DROPOUTS:
            return args[2] is False
        if op == _COPY:  # of a constant, against changes in place
            return self.is_functional
        if op == "aten.detach_.default":  # of a constant; other tensors may have gradients
            return args[0] in self.copies or args[0].name in self.constants
        return op == "aten.alias.default"

    def source(self, node: fx.Node) -> str:
        """The path of the module that a node stems from."""
        stack = node.meta.get("nn_module_stack") or {}
        path = str([*stack.values()][-1][0]) if stack else ""
        path = path.partition("@")[0]
        return path.removeprefix(self.prefix) if path.startswith(self.prefix) else ""

    def with_grad_mode(self, enabled: Any, inner: Any, *inputs: Any) -> tuple[Any, ...]:
        """A graph inside ``torch.no_grad()``: its steps between two that set the mode."""
        module: fx.GraphModule = self.values[inner]
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.values.update(zip(places, self.argument(inputs), strict=True))
        before = self.grad_mode(enabled)
        returned = self.graph(module)
        self.grad_mode(before)
        return returned

    def grad_mode(self, mode: Any) -> Value:
        """A step that sets the mode; its value is what the mode was."""
        name = self.names.fresh("grad_mode")
        self.steps.append(Step(name, operators.GRAD_MODE, (mode,)))
        return Value(name)

    def argument(self, value: Any) -> Any:
        """An argument as plain data."""
        if isinstance(value, fx.Node):
            return self.values[value]
        if isinstance(value, tuple | list):
            return tuple(self.argument(item) for item in value)
        if value is None or isinstance(value, bool | int | float | complex | str):
            return value
        name = operators.torch_name(value)
        if name is None:
            raise ArgumentError(f"an operator takes a {type(value).__name__}: {value!r}")
        return name


def _paths(model: nn.Module) -> dict[int, str]:
    """The first path of every parameter and buffer, by identity."""
    found: dict[int, str] = {}
    for each in (model.named_parameters, model.named_buffers):
        for path, value in each(remove_duplicate=False):
            found.setdefault(id(value), path)
    return found


def _attribute(model: nn.Module, path: str) -> Tensor | None:
    """The tensor at a path, if there is one."""
    value: Any = model
    for name in path.split("."):
        value = getattr(value, name, None)
    return value if isinstance(value, Tensor) else None


def _is_functional(module: fx.GraphModule) -> bool:
    """Whether no call changes a tensor in place, but for marks of constants."""
    graphs = [each.graph for each in module.modules() if isinstance(each, fx.GraphModule)]
    targets = {n.target for graph in graphs for n in graph.nodes if n.op == "call_function"}
    mutable = {t for t in targets if isinstance(t, torch._ops.OpOverload) and t._schema.is_mutable}
    return mutable <= {torch.ops.aten.detach_.default}


def _input(value: Value, node: fx.Node) -> Input:
    example = node.meta["val"]
    dtype = operators.torch_name(example.dtype) or TorchName("dtype", "")
    return Input(value, dtype.name, example.ndim)


def _conditions(exported: ExportedProgram, given: Iterable[fx.Node]) -> Iterator[Condition]:
    """What holds of the sizes: fixed ones, equal ones, and the answers that tracing relied on."""
    answers = [parse(code) for code in exported._guards_code]
    fixed = {a.left for a in answers if a.compare == "==" and isinstance(a.right, int)}
    first: dict[str, Any] = {}
    for index, node in enumerate(given):
        for dimension, size in enumerate(node.meta["val"].shape):
            this = ("size", index, dimension)
            if isinstance(size, int):
                yield Condition(this, "==", size)
            elif str(size) in first:
                yield Condition(this, "==", first[str(size)])
            else:
                first[str(size)] = this
                if this not in fixed:
                    yield at_least_two(index, dimension)
    yield from answers
