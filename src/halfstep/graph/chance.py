"""Which steps draw random numbers."""

from typing import Any

from halfstep.graph.operators import is_random, resolve
from halfstep.graph.program import Step

_SWITCHES = ("train", "training")
_SHARES = ("dropout_p", "p")


def draws(step: Step) -> bool:
    """Whether a step draws numbers as it is called: a dropout outside of training draws none.

    >>> from halfstep.graph.chance import draws
    >>> from halfstep.graph.program import Step
    >>> from halfstep.graph.trees import Value
    >>> x = Value("x")
    >>> draws(Step("y", "aten.rand_like.default", (x,)))
    True
    >>> draws(Step("y", "aten.scaled_dot_product_attention.default", (x, x, x)))
    False
    """
    if not is_random(step.op):
        return False
    function: Any = resolve(step.op)
    arguments = function._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments}
    given |= dict(zip(given, step.args, strict=False)) | dict(step.kwargs)
    is_off = any(given.get(name) is False for name in _SWITCHES)
    return not is_off and all(given.get(name) != 0 for name in _SHARES)
