"""Which code answers a torch function or operator that meets a quantized tensor.

Two tables are filled by the other files of this room: ``OPERATORS`` by aten operator, and
``FUNCTIONS`` by name, for functions that torch takes apart before operators are reached. What
stands in neither runs on floats: the quantized arguments are dequantized first.
"""

import contextvars
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_any, tree_map

from halfstep.errors import FallbackError, MutationError

Handler = TypeVar("Handler", bound=Callable[..., Any])

OPERATORS: dict[Any, Callable[..., Any]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}

_fallback_allowed = contextvars.ContextVar("halfstep_fallback_allowed", default=True)

# Functions that torch builds from others in a way that loses nothing on integers. Every other
# composite is handed floats: its inner sums and products would each be rounded to a grid.
_EXACT_NAMES = """
    adaptive_max_pool1d adjoint argsort atleast_1d atleast_2d atleast_3d broadcast_tensors
    broadcast_to chunk clip column_stack concat concatenate contiguous data detach diag dim
    dropout dsplit dstack embedding_bag expand_as flatten fliplr flipud get_device greater
    greater_equal hsplit hstack is_complex is_conj is_contiguous is_floating_point is_inference
    is_leaf is_neg is_nonzero is_signed item less less_equal mH mT matrix_H max max_pool1d
    max_pool2d max_pool3d meshgrid min moveaxis movedim msort multiply narrow negative not_equal
    numel numpy_T output_nr pad pin_memory positive promote_types ravel real relu6 requires_grad_
    reshape reshape_as resolve_conj resolve_neg result_type retain_grad retains_grad row_stack
    set_ set_data size split storage_offset stride subtract swapaxes swapdims take_along_dim
    tensor_split tile to type_as unflatten unsafe_chunk view_as vsplit vstack where _version
"""
_EXACT_COMPOSITES = frozenset(_EXACT_NAMES.split())
_COMPOSITES = frozenset(
    name.removeprefix("aten::").partition(".")[0]
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    if name.startswith("aten::")
)
_NEED_FLOATS = frozenset(
    name for name in _COMPOSITES - _EXACT_COMPOSITES if name.rstrip("_") not in _EXACT_COMPOSITES
)
_PYTHON_MODULES = ("torch.functional", "torch.nn.functional")
# Pooling functions choose by name whether to return indices; "fn" is what torch calls the choice.
_POOLS = [f"{kind}max_pool{n}d" for kind in ("", "_", "adaptive_", "_adaptive_") for n in (1, 2, 3)]
_EXACT_PYTHON = frozenset(
    ["dropout", "embedding", "fn", "hardtanh", "relu", "split", "unfold"]
    + [name + rest for name in _POOLS for rest in ("", "_with_indices")]
)


def operator(*overloads: Any) -> Callable[[Handler], Handler]:
    """Register a function as the form of aten operators on quantized tensors."""

    def register(handler: Handler) -> Handler:
        OPERATORS.update(dict.fromkeys(overloads, handler))
        return handler

    return register


def function(*names: str) -> Callable[[Handler], Handler]:
    """Register a function as the form of torch functions and methods of these names."""

    def register(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(names, handler))
        return handler

    return register


@contextmanager
def no_fallback() -> Iterator[None]:
    """Raise ``FallbackError`` instead of dequantizing, inside the ``with``.

    For code that must stay in integers: an op that has no integer form is named, not run on
    floats. A ``torch.compile``d function keeps the rule under which it was compiled. Writing in
    place raises ``MutationError`` in here as elsewhere.

    >>> import halfstep as hs, torch
    >>> q = hs.quantize(torch.ones(2, 2), hs.int8)
    >>> with hs.no_fallback():
    ...     stays = q.relu().t()
    >>> stays.spec
    QSpec(int8)
    """
    token = _fallback_allowed.set(False)
    try:
        yield
    finally:
        _fallback_allowed.reset(token)


class Dispatched(torch.Tensor):
    """The base of ``QTensor``: a tensor whose operators are looked up in the tables."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Route a function to its own form, to floats, or on to ``__torch_dispatch__``."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            handler = FUNCTIONS.get(name)
            if handler is not None:
                return handler(func, *args, **kwargs)
            if _needs_floats(func, name):
                return on_floats(func, name, args, kwargs)
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub lacks func
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an aten operator by the table, or on floats."""
        kwargs = kwargs or {}
        handler = OPERATORS.get(func)
        if handler is not None:
            result = handler(func, *args, **kwargs)
            if result is not NotImplemented:
                return result
        name = func._schema.name.partition("::")[2]
        if func._schema.is_mutable:
            _refuse_mutation(f"aten.{name}", _written(func, args, kwargs))
        if name in _EXACT_COMPOSITES:  # met whole below autograd and in inference mode
            result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return _without_history(func, f"aten.{name}", args, kwargs)


def _needs_floats(func: Callable[..., Any], name: str) -> bool:
    if isinstance(func, FunctionType) and func.__module__ in _PYTHON_MODULES:
        return name not in _EXACT_PYTHON and name not in _EXACT_COMPOSITES
    return name in _NEED_FLOATS


def on_floats(func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """Call a torch function with every quantized argument dequantized."""
    _refuse_mutation(name, _given_to_write(func, name, args, kwargs))
    _refuse_fallback(name)
    args, kwargs = tree_map(to_float, (args, kwargs))
    return func(*args, **kwargs)


def to_float(value: Any) -> Any:
    """The floats of a quantized tensor; anything else as it is."""
    return value.dequantize() if isinstance(value, Dispatched) else value


def _without_history(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Call an operator on floats, below autograd, which has the history already."""
    _refuse_fallback(name)
    with torch.no_grad():
        args, kwargs = tree_map(to_float, (args, kwargs))
    return func(*args, **kwargs)


def _refuse_fallback(name: str) -> None:
    if not _fallback_allowed.get():
        raise FallbackError(
            f"{name} has no integer form: it would dequantize its input, and no_fallback() is in "
            "force; call .dequantize() where floats are meant"
        )


def _refuse_mutation(name: str, written: Any) -> None:
    """Raise where a quantized tensor would be written into: the change would be lost."""
    if tree_any(lambda value: isinstance(value, Dispatched), written):
        raise MutationError(
            f"{name} would change a quantized tensor in place: use the form that returns a new "
            "tensor, or change q.dequantize() and quantize that"
        )


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operator's schema says it writes into."""
    schema = func._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs
    written = [a.name for a in schema if a.alias_info and a.alias_info.is_write]
    return [given[name] for name in written if name in given]


def _given_to_write(func: Any, name: str, args: tuple[Any, ...], kwargs: Any) -> list[Any]:
    """The arguments that a torch function writes into: its name, ``out=`` or ``inplace`` tells."""
    given = dict(kwargs)
    if isinstance(func, FunctionType):
        given |= dict(zip(inspect.signature(func).parameters, args, strict=False))
    in_place = name.endswith("_") and not name.endswith("__")
    first = args[:1] or tuple(kwargs.values())[:1]
    return [kwargs.get("out"), *(first if in_place or given.get("inplace") is True else ())]
