"""Steps that look at the memory of another value, and how a change of it is written back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from halfstep.graph.program import Step
from halfstep.graph.trees import Value, leaves

# An operator and its arguments.
Call: TypeAlias = tuple[str, tuple[Any, ...]]

GETITEM = "operator.getitem"
# The same numbers in the same order, under another shape.
_RESHAPES = {
    "aten.alias.default",
    "aten.detach.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.view.default",
}
# A part of the numbers; the operator that returns the whole with another part takes the same.
_PARTS = {
    "aten.diagonal.default": "aten.diagonal_scatter.default",
    "aten.select.int": "aten.select_scatter.default",
    "aten.slice.Tensor": "aten.slice_scatter.default",
}
# Their own inverse.
_SWAPS = {
    "aten.swapaxes.default",
    "aten.swapdims.default",
    "aten.t.default",
    "aten.transpose.int",
}
_PERMUTE = "aten.permute.default"
# Views through which a change is not written back here.
_OTHERS = {
    "aten.as_strided.default",
    "aten.chunk.default",
    "aten.expand.default",
    "aten.movedim.int",
    "aten.movedim.intlist",
    "aten.narrow.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.unbind.int",
    "aten.unfold.default",
    GETITEM,
}
_VIEWS = _RESHAPES | set(_PARTS) | _SWAPS | {_PERMUTE} | _OTHERS
# They return their argument or a copy of it, which their declaration does not say.
_UNDECLARED = {
    "_unsafe_view",
    "alpha_dropout",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_tensors",
    "cartesian_prod",
    "chain_matmul",
    "dropout",
    "einsum",
    "feature_alpha_dropout",
    "feature_dropout",
    "linalg_multi_dot",
    "meshgrid",
    "sum_to_size",
    "type_as",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
}


@dataclass(frozen=True)
class View:
    """How a value is seen: a step without its name and its first argument."""

    op: str
    rest: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def of(self, source: Value, name: str) -> Step:
        """The step that looks at ``source`` in this way."""
        return Step(name, self.op, (source, *self.rest), self.kwargs)

    def written(self, source: Value, part: Value, name: str) -> Step | None:
        """The step that brings ``source`` with ``part`` in place of what is seen, if one does."""
        if self.op in _RESHAPES:
            return Step(name, "aten.reshape_as.default", (part, source))
        if self.op in _SWAPS:
            return Step(name, self.op, (part, *self.rest), self.kwargs)
        if self.op == _PERMUTE and not self.kwargs:
            return Step(name, self.op, (part, _inverse(self.rest[0])))
        if self.op in _PARTS:
            return Step(name, _PARTS[self.op], (source, part, *self.rest), self.kwargs)
        return None


def view_of(step: Step) -> View | None:
    """What a step sees of the memory of its first argument, where it is sure to be a view.

    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.trees import Value
    >>> from halfstep.graph.views import view_of
    >>> view_of(Step("y", "aten.select.int", (Value("x"), 0, 1)))
    View(op='aten.select.int', rest=(0, 1), kwargs=())
    """
    if step.op not in _VIEWS or not step.args or not isinstance(step.args[0], Value):
        return None
    return View(step.op, step.args[1:], step.kwargs)


def may_share(step: Step, schema: Any) -> bool:
    """Whether a step may return memory of its arguments, or may copy it, as their strides are."""
    if step.op.split(".")[1] in _UNDECLARED:
        return True
    return any(each.alias_info is not None for each in schema.returns)


def item(view: View, index: int) -> tuple[View, ...]:
    """The path to one of the values that a view cuts a tensor into."""
    if view.op in _CUTS and not view.kwargs:
        cut = _CUTS[view.op](index, *view.rest)
        if cut is not None:
            return (cut,)
    return (view, View(GETITEM, (index,)))


def _row(index: int, dim: int = 0) -> View:
    return View("aten.select.int", (dim, index))


def _piece(index: int, size: Any, dim: int = 0) -> View | None:
    if not isinstance(size, int):
        return None
    return View("aten.slice.Tensor", (dim, index * size, (index + 1) * size))


def _sized_piece(index: int, sizes: tuple[Any, ...], dim: int = 0) -> View | None:
    if any(isinstance(leaf, Value) for leaf in leaves(sizes)):
        return None
    start = sum(sizes[:index])
    return View("aten.slice.Tensor", (dim, start, start + sizes[index]))


_CUTS: dict[str, Callable[..., View | None]] = {
    "aten.split.Tensor": _piece,
    "aten.split_with_sizes.default": _sized_piece,
    "aten.unbind.int": _row,
}


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    places = [dim % len(order) for dim in order]
    return tuple(places.index(dim) for dim in range(len(places)))
