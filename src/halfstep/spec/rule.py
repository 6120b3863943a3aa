"""Rule: which layers get which formats."""

from dataclasses import dataclass
from typing import Any

from halfstep.errors import ArgumentError
from halfstep.spec.matches import as_operator, operator_at, operator_name, source_of

SLOTS = ("weight", "input", "output")
OBSERVERS = ("observer", "weight_observer")


@dataclass(frozen=True, slots=True)
class Rule:
    """Which layers get which formats; in a list of rules the first that matches a layer wins.

    match: a module's name, a glob over names (``*`` crosses dots), a module type, or a module; or,
        where programs are quantized, an operator such as ``torch.ops.aten.add``, or its function
        ``torch.add``, wherever in the model it is used.
    weight, input, output: what the layer's weights, the tensors that it is given and those that it
        returns become: a ``QSpec`` or integer dtype, an observer, or any callable from tensor to
        tensor.
    observer: how ranges of ``input`` and ``output`` are found: an observer class, or anything that
        makes an observer from a ``QSpec``.
    weight_observer: the same for the weight, whose range is otherwise that of all its values.
    keep_float: the layer stays as it is, whatever later rules say.

    Raises ``ArgumentError`` for a rule that asks for nothing, or for two things at once, and for a
    function of torch that is no operator.

    >>> import halfstep as hs, torch
    >>> hs.Rule("layer1.*", weight=hs.QSpec(hs.int8, hs.PerChannel(0)))
    Rule('layer1.*', weight=QSpec(int8, PerChannel(axis=0)))
    >>> hs.Rule(torch.matmul, keep_float=True)
    Rule(torch.ops.aten.matmul, keep_float=True)
    """

    match: Any
    weight: Any = None
    input: Any = None
    output: Any = None
    observer: Any = None
    keep_float: bool = False
    weight_observer: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "match", as_operator(self.match))
        asked = [slot for slot in SLOTS if getattr(self, slot) is not None]
        given = asked + [name for name in OBSERVERS if getattr(self, name) is not None]
        if self.keep_float and given:
            raise ArgumentError(
                f"the rule for {self.match!r} says keep_float=True and also {', '.join(given)}: "
                "leave one of them out"
            )
        if not asked and not self.keep_float:
            raise ArgumentError(
                f"the rule for {self.match!r} asks for nothing: give weight=, input=, output= or "
                "keep_float=True"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Torch pickles single overloads only.
        name = operator_name(self.match)
        fields = (*SLOTS, "observer", "keep_float", "weight_observer")
        values = [getattr(self, field) for field in fields]
        return _made, (name, self.match if name is None else None, *values)

    def __repr__(self) -> str:
        given = [name for name in (*SLOTS, *OBSERVERS) if getattr(self, name) is not None]
        parts = [source_of(self.match), *(f"{name}={_name(getattr(self, name))}" for name in given)]
        return f"Rule({', '.join(parts + ['keep_float=True'] * self.keep_float)})"


def _made(operator: str | None, match: Any, *values: Any) -> Rule:
    """The rule of a pickle."""
    return Rule(match if operator is None else operator_at(operator), *values)


def _name(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)
