"""From a module and example arguments to a program, by ``torch.export``."""

import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from halfstep.errors import ArgumentTypeError
from halfstep.graph.check import check
from halfstep.graph.lower import Flat, Returned, lower
from halfstep.graph.program import Program
from halfstep.graph.recurrent import as_operators
from halfstep.graph.trees import Branch, Value, is_plain, join, leaves, mapped, split

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._export", "torch.export")


def arguments(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Branch:
    """The arguments of forward by name, defaults included, as a tree.

    Raises ``ArgumentTypeError`` when forward does not take them.
    """
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentTypeError(
            f"forward{signature} does not take these arguments: {error}"
        ) from None
    for name, parameter in signature.parameters.items():
        if parameter.default is not parameter.empty and is_plain(parameter.default):
            bound.arguments.setdefault(name, parameter.default)
    tree: Branch = split(bound.arguments)
    return tree


def named(tree: Branch) -> tuple[Branch, dict[str, Tensor]]:
    """The tree with a ``Value`` for each tensor, and the tensors by name.

    Raises ``ArgumentTypeError`` for a leaf that is neither a tensor nor plain data.
    """
    tensors: dict[str, Tensor] = {}

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, Branch):
            paths = [f"{path}_{key}" if path else str(key) for key in node.keys]
            children = tuple(map(walk, node.children, paths))
            return Branch(node.type, node.keys, children)
        if isinstance(node, Tensor):
            tensors[path] = node
            return Value(path)
        if not is_plain(node):
            raise ArgumentTypeError(
                f"{path} is a {type(node).__name__}: a program takes tensors, numbers, text, None, "
                "and tuples, lists, dicts and dataclasses of them"
            )
        return node

    return walk(tree, ""), tensors


def call(model: nn.Module, tree: Branch) -> Any:
    """What forward returns for a tree of arguments; hooks of the model itself are left out."""
    bound = inspect.BoundArguments(inspect.signature(model.forward), join(tree))
    return model.forward(*bound.args, **bound.kwargs)


class _Tensors(Flat):
    """The module as a function of its tensors alone, which returns tensors and sizes alone."""

    def __init__(self, model: nn.Module, tree: Branch) -> None:
        super().__init__()
        self.model = model
        self.tree = tree
        self.returned = Returned()

    def forward(self, *tensors: Tensor) -> list[Any]:
        """Call the module as its tree says."""
        names = [leaf for leaf in leaves(self.tree) if isinstance(leaf, Value)]
        values = dict(zip(names, tensors, strict=True))
        filled = mapped(self.tree, lambda v: values[v] if isinstance(v, Value) else v)
        returned = split(call(self.model, filled))
        found = [leaf for leaf in leaves(returned) if isinstance(leaf, (Tensor, *_SYMBOLS))]
        order = iter(range(len(found)))
        self.returned.tree = mapped(returned, lambda leaf: _output(leaf, order))
        return found


def _output(leaf: Any, order: Iterator[int]) -> Any:
    if isinstance(leaf, (Tensor, *_SYMBOLS)):
        return Value(str(next(order)))
    if is_plain(leaf):
        return leaf
    raise ArgumentTypeError(
        f"forward returns a {type(leaf).__name__}: a program returns tensors, numbers, text, None, "
        "and tuples, lists, dicts and dataclasses of them"
    )


def export(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Program:
    """The program that computes what forward computes, for inputs of other sizes too.

    The mode is the model's own; forward hooks of the model itself are not part of the program.

    Raises whatever ``torch.export`` raises for a model that it cannot trace, and ``ArgumentError``
    or ``ArgumentTypeError`` for one that has no place in a program.
    """
    return export_tree(model, arguments(inspect.signature(model.forward), args, kwargs or {}))


def export_tree(model: nn.Module, given: Branch) -> Program:
    """The same for arguments that are a tree already."""
    tree, tensors = named(given)
    flat = _Tensors(model, tree)
    flat.training = model.training
    examples = tuple(tensors.values())
    sizes = tuple([Dim.AUTO] * value.ndim for value in examples)
    with as_operators(model), _quiet(), torch.enable_grad():
        exported = torch.export.export(flat, examples, dynamic_shapes=(sizes,), strict=False)
    program = lower(exported, flat, list(tensors))
    check(program, model)
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """What torch tells its own developers while tracing is not for the user."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        # Torch prints the graph of a model that it cannot trace, which is no error of the user's.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
