"""A program of ``torch.export`` as a model: its tensors under their names, and steps that run."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils._pytree import tree_unflatten

from halfstep.errors import ArgumentError
from halfstep.graph.check import check
from halfstep.graph.lower import Flat, Returned, lower
from halfstep.graph.product import install
from halfstep.graph.program import Program
from halfstep.graph.trees import Branch, Value, is_plain, leaves, split

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_GIVEN = (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
# Operators that differ in training, and which of their arguments says so.
_TRAINS = {
    "aten.batch_norm.default": 5,
    "aten.dropout.default": 2,
    "aten.dropout_.default": 2,
    "aten.feature_dropout.default": 2,
    "aten.alpha_dropout.default": 2,
}


class ExportedModel(nn.Module):
    """A module of a model that was exported: its tensors, without the Python of its class.

    Raises ``ArgumentError`` when a part of the model is called by itself.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: only the whole model has a program."""
        raise ArgumentError(
            "this module runs as a part of the whole model only, since torch.export keeps no code "
            "of its parts: call the model"
        )


class _Whole(Flat):
    """The exported program as a function of its tensors, for ``lower``."""

    prefix = ""

    def __init__(self, model: nn.Module, tree: Branch, returned: Any) -> None:
        super().__init__()
        self.model, self.tree, self.returned = model, tree, Returned()
        self.returned.tree = returned
        self.training = False


def model_of(exported: ExportedProgram) -> nn.Module:
    """The model of an exported program, in eval mode: same names, same arguments, same results.

    It takes the sizes that were exported as dynamic; others are fixed.

    Raises ``ArgumentError`` for a program that was exported in train mode or that changes its
    buffers or inputs, and for what has no place in a program.

    >>> import torch
    >>> from halfstep.graph.exported import model_of
    >>> linear, x = torch.nn.Linear(2, 3), torch.ones(4, 2)
    >>> model = model_of(torch.export.export(linear, (x,)))
    >>> [name for name, _ in model.named_parameters()], torch.equal(model(x), linear(x))
    (['weight', 'bias'], True)
    """
    _check_signature(exported)
    model = _tensors_of(exported)
    signature, tree = _arguments(exported)
    flat = _Whole(model, tree, _returned(exported))
    names = [leaf.name for leaf in leaves(tree) if isinstance(leaf, Value)]
    program = lower(exported, flat, names)
    # A size of 1 runs as torch's own module runs it.
    needed = tuple(each for each in program.conditions if not each.is_assumed)
    program = replace(program, conditions=needed)
    check(program, model)
    _check_mode(program)
    vars(model)["forward"] = _Signed(signature)
    install(model, {"": [program]})
    return model.eval()


class _Signed:
    """Stands for the forward of the exported class, of which only the arguments are known."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.__signature__ = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError("the code of an exported model is its program alone")


def _check_signature(exported: ExportedProgram) -> None:
    given = {spec.kind for spec in exported.graph_signature.input_specs} - {*_GIVEN}
    made = {spec.kind for spec in exported.graph_signature.output_specs} - {OutputKind.USER_OUTPUT}
    if given or made:
        names = ", ".join(sorted(kind.name.lower() for kind in (*given, *made)))
        raise ArgumentError(
            f"this exported program has {names} besides inputs and outputs: export the model in "
            "eval mode, as a function without side effects"
        )


def _check_mode(program: Program) -> None:
    for step in program.steps:
        place = _TRAINS.get(step.op)
        if place is not None and step.args[place] is True:
            raise ArgumentError(
                f"this program was exported in train mode ({step.op} of {step.source or step.name} "
                "says so): call model.eval() before torch.export.export"
            )


def _tensors_of(exported: ExportedProgram) -> ExportedModel:
    """Parameters and buffers in modules with the names of the original's."""
    model = ExportedModel()
    buffers = {*exported.graph_signature.buffers}
    made: dict[Any, nn.Parameter] = {}  # tied ones stay one
    constants = {n: v for n, v in exported.constants.items() if isinstance(v, Tensor)}
    for path, value in {**constants, **exported.state_dict}.items():
        *owners, name = path.split(".")
        module: nn.Module = model
        for owner in owners:
            if owner not in module._modules:
                module.add_module(owner, ExportedModel())
            module = module.get_submodule(owner)
        if path in exported.state_dict and path not in buffers:
            parameter = nn.Parameter(value.detach(), requires_grad=value.requires_grad)
            module.register_parameter(name, made.setdefault(_memory(value), parameter))
        else:
            module.register_buffer(name, value.detach(), persistent=path in exported.state_dict)
    return model


def _memory(value: Tensor) -> Any:
    return value.untyped_storage().data_ptr(), value.storage_offset(), value.shape, value.stride()


def _arguments(exported: ExportedProgram) -> tuple[inspect.Signature, Branch]:
    """The signature of forward, and a tree with a value for each tensor that it is given."""
    known = exported.module_call_graph[0].signature
    if known is None:
        raise ArgumentError("this exported program does not say which arguments it takes")
    specs = exported.graph_signature.input_specs
    given = [_argument(s.arg) for s in specs if s.kind == InputKind.USER_INPUT]
    args, kwargs = tree_unflatten(given, known.in_spec)
    names = [*(known.forward_arg_names or [f"x{place}" for place in range(len(args))])]
    names = [name for name in names if name not in kwargs]
    takes = {**dict(zip(names, args, strict=True)), **kwargs}
    tree: Branch = split(takes)
    return inspect.Signature([*_parameters(takes, len(names))]), tree


def _parameters(takes: Mapping[str, Any], positional: int) -> Iterator[inspect.Parameter]:
    """The parameters of forward; constants need not be given, as far as Python allows it."""
    constant = [is_plain(value) for value in takes.values()]
    for place, (name, value) in enumerate(takes.items()):
        is_keyword = place >= positional
        kind = inspect.Parameter.KEYWORD_ONLY if is_keyword else _POSITIONAL
        optional = constant[place] if is_keyword else all(constant[place:positional])
        yield inspect.Parameter(name, kind, default=value if optional else inspect.Parameter.empty)


def _argument(argument: Any) -> Any:
    if isinstance(argument, TensorArgument):
        return Value(argument.name)
    if isinstance(argument, ConstantArgument):
        return argument.value
    raise ArgumentError(
        f"this exported program takes {argument}: only tensors and constants can be"
    )


def _returned(exported: ExportedProgram) -> Any:
    """What forward returns, with the place of each result in the graph's outputs."""
    known = exported.module_call_graph[0].signature
    count = len(exported.graph_signature.output_specs)
    places = [Value(str(place)) for place in range(count)]
    return split(tree_unflatten(places, known.out_spec)) if known else places
