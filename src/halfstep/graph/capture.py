"""From any float model to programs: the whole of it, or its largest parts that can be traced."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, HalfstepError
from halfstep.graph.export import arguments, export_tree
from halfstep.graph.probe import copied_leaf, proved, same_start
from halfstep.graph.program import Program
from halfstep.graph.reasons import readable
from halfstep.graph.trees import Branch, mapped

# Sizes with which a module is called, kept to prove its program on.
_MOST_EXAMPLES = 4


@dataclass(frozen=True)
class Region:
    """A module of the model by its path, and its programs, or the reason why it has none.

    There is one program for each kind of arguments with which the module is called.
    """

    path: str
    programs: tuple[Program, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        name = self.path or "the model"
        if not self.programs:
            return f"{name}: stays Python, since {self.reason}"
        return f"{name}: {' or '.join(str(len(p.steps)) for p in self.programs)} steps"


@dataclass(frozen=True)
class Captured:
    """What was captured of a model, from the root downwards.

    A module without a program is followed by the parts of it that were captured instead.
    """

    regions: tuple[Region, ...]

    @property
    def programs(self) -> dict[str, tuple[Program, ...]]:
        """The programs by the path of their module; the whole model is ""."""
        return {region.path: region.programs for region in self.regions if region.programs}

    def __str__(self) -> str:
        return "\n".join(map(str, self.regions))


def capture(
    model: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    run: Callable[[nn.Module], Any] | None = None,
) -> Captured:
    """The programs that compute exactly what the model computes, in the mode that it is in.

    ``args`` and ``kwargs`` are an example of what forward is given; or ``run`` is a function that
    runs the model in its own way. The model itself is not changed. Programs take inputs of other
    sizes; where they would be wrong, they raise. Attention is captured as its steps: under
    ``no_grad`` torch's own ``nn.MultiheadAttention`` may take a fused form that rounds otherwise.

    Raises ``ArgumentTypeError`` for arguments that forward does not take, and what the model raises
    on them.

    >>> import torch
    >>> from halfstep.graph.capture import capture
    >>> class Odd(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = torch.nn.Linear(2, 2)
    ...     def forward(self, x):
    ...         return self.fc(x) if x.sum() > 0 else x
    >>> print(capture(Odd(), (torch.ones(3, 2),)))
    the model: stays Python, since its Python code depends on the values of a tensor...
    fc: 1 steps
    """
    if ready := programs_of(model):
        return Captured((Region("", ready),))
    with torch.inference_mode(mode=False):
        work = copy.deepcopy(model)
        runner = run or partial(_run, args=args, kwargs=kwargs or {})
        whole = _region("", work, _called(work, [work], runner))
        if whole.programs:
            return Captured((whole,))
        parts = [module for module in work.modules() if module is not work]
        return Captured((whole, *_parts("", work, _called(work, parts, runner))))


def programs_of(model: nn.Module) -> tuple[Program, ...]:
    """The float programs that a model runs from the start, as one of ``torch.export`` does."""
    found = tuple(getattr(vars(model).get("forward"), "programs", ()))
    return found if all(isinstance(each, Program) for each in found) else ()


def _run(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    arguments(inspect.signature(model.forward), args, kwargs)
    return model(*args, **kwargs)


class _Calls:
    """With which arguments some modules are called."""

    def __init__(self) -> None:
        self.examples: dict[nn.Module, dict[Any, Branch]] = {}
        self.refused: dict[nn.Module, str] = {}
        self.done: set[nn.Module] = set()

    def note(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Keep a copy of the arguments, if they are of a new kind or size."""
        known = self.examples.setdefault(module, {})
        try:
            tree = arguments(inspect.signature(module.forward), args, kwargs)
        except HalfstepError as error:
            self.refused[module] = str(error)
            return
        key = mapped(tree, _size)
        if len(known) < _MOST_EXAMPLES and key not in known:
            known[key] = mapped(tree, copied_leaf)


def _called(model: nn.Module, modules: Sequence[nn.Module], run: Callable[..., Any]) -> _Calls:
    """The calls of these modules while the model runs."""
    calls = _Calls()
    handles = [m.register_forward_pre_hook(calls.note, with_kwargs=True) for m in modules]
    try:
        with same_start(model):
            run(model)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _size(leaf: Any) -> Any:
    return (leaf.dtype, leaf.shape) if isinstance(leaf, Tensor) else _kind(leaf)


def _kind(leaf: Any) -> Any:
    return (leaf.dtype, leaf.ndim) if isinstance(leaf, Tensor) else (type(leaf), repr(leaf))


def _region(path: str, module: nn.Module, calls: _Calls) -> Region:
    examples = list(calls.examples.get(module, {}).values())
    try:
        return Region(path, _programs(module, examples, calls.refused.get(module)))
    except Exception as error:  # noqa: BLE001  (a model may fail in any way of its own)
        return Region(path, reason=readable(error))


def _parts(path: str, module: nn.Module, calls: _Calls) -> Iterator[Region]:
    """The modules inside; below one that cannot be captured its own parts; shared ones once."""
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if child in calls.done:
            continue
        calls.done.add(child)
        if child in calls.examples or not any(True for _ in child.children()):
            region = _region(inner, child, calls)
            yield region
            if region.programs:
                continue
        yield from _parts(inner, child, calls)


def _programs(
    module: nn.Module, examples: list[Branch], refused: str | None
) -> tuple[Program, ...]:
    """A proved program for each kind of arguments."""
    if refused is not None:
        raise ArgumentError(refused)
    if not examples:
        raise ArgumentError("it was not called when the model ran")
    kinds: dict[Any, list[Branch]] = {}
    for example in examples:
        kinds.setdefault(mapped(example, _kind), []).append(example)
    return tuple(_program(module, alike) for alike in kinds.values())


def _program(module: nn.Module, examples: list[Branch]) -> Program:
    wide: Branch = mapped(examples[0], _twice)
    if mapped(wide, _size) != mapped(examples[0], _size):
        with suppress(Exception):  # not every 1 is a batch: as it is, then
            return proved(export_tree(module, wide), module, [wide, *examples])
    return proved(export_tree(module, examples[0]), module, examples)


def _twice(leaf: Any) -> Any:
    """A batch of 1 twice, since tracing fixes a size of 1."""
    if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == 1:
        return leaf.repeat(2, *(1 for _ in leaf.shape[1:]))
    return leaf
