"""The names of inputs, outputs and of the sizes that vary."""

from typing import Any

from halfstep.errors import ArgumentError
from halfstep.graph.program import Program
from halfstep.graph.trees import Branch, Value


def input_dimensions(program: Program) -> dict[str, tuple[int | str, ...]]:
    """For each input its sizes: a number where it is fixed, else a name, the same for equal sizes.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> input_dimensions(export(torch.nn.Linear(2, 1), (torch.ones(3, 2),)))
    {'input': ('input_0', 2)}

    Raises ``ArgumentError`` for an input that may have any number of dimensions.
    """
    sizes: dict[Any, int | str] = {}
    for index, given in enumerate(program.inputs):
        if given.ndim is None:
            raise ArgumentError(
                f"its input {given.value.name} may have any number of dimensions, since no data "
                "was seen: quantize the model with batches, so that it is traced as a whole"
            )
        for axis in range(given.ndim):
            sizes["size", index, axis] = f"{given.value.name}_{axis}"
    for condition in program.conditions:
        if condition.compare == "==" and condition.left in sizes:
            if isinstance(condition.right, int):
                _replace(sizes, sizes[condition.left], condition.right)
            elif condition.right in sizes:
                _replace(sizes, sizes[condition.left], sizes[condition.right])
    return {
        given.value.name: tuple(sizes["size", index, axis] for axis in range(given.ndim or 0))
        for index, given in enumerate(program.inputs)
    }


def _replace(sizes: dict[Any, int | str], old: int | str, new: int | str) -> None:
    for key, size in sizes.items():
        if size == old:
            sizes[key] = new


def output_names(program: Program) -> list[tuple[str, Value]]:
    """Each tensor that forward returns, by the keys that lead to it; a single one is "output".

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> [name for name, _ in output_names(export(torch.nn.LSTM(2, 3), (torch.ones(4, 2, 2),)))]
    ['output_0', 'output_1_0', 'output_1_1']
    """
    return [(name or "output", value) for name, value in _walk(program.outputs, "")]


def _walk(tree: Any, path: str) -> list[tuple[str, Value]]:
    if isinstance(tree, Value):
        return [(path, tree)]
    if not isinstance(tree, Branch):
        return []
    start = path or ("output" if issubclass(tree.type, tuple | list) and _is_plain(tree) else "")
    found: list[tuple[str, Value]] = []
    for key, child in zip(tree.keys, tree.children, strict=True):
        found += _walk(child, f"{start}_{key}" if start else str(key))
    return found


def _is_plain(tree: Branch) -> bool:
    return all(isinstance(key, int) for key in tree.keys)
