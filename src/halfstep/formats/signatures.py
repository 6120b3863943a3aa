"""The signature of a forward, as JSON and back."""

import inspect
from dataclasses import dataclass
from typing import Any, Final

from halfstep.errors import FileFormatError
from halfstep.formats.plain_trees import from_plain, to_plain
from halfstep.graph.trees import is_plain

_KINDS: Final = {
    kind.name: kind
    for kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    )
}


@dataclass(frozen=True)
class Unstored:
    """Stands for a default that is no plain data: what the model was captured with."""

    text: str

    def __repr__(self) -> str:
        return self.text


def signature_to_plain(signature: inspect.Signature) -> list[dict[str, Any]]:
    """Name, kind and default of each parameter.

    >>> signature_to_plain(inspect.signature(lambda x, *, scale=2.0: x))
    [{'name': 'x', 'kind': 'POSITIONAL_OR_KEYWORD'}, {'name': 'scale', 'kind': 'KEYWORD_ONLY', \
'default': 2.0}]
    """
    return [_parameter_to_plain(parameter) for parameter in signature.parameters.values()]


def _parameter_to_plain(parameter: inspect.Parameter) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": parameter.name, "kind": parameter.kind.name}
    if parameter.default is parameter.empty:
        return plain
    if is_plain(parameter.default):
        return plain | {"default": to_plain(parameter.default)}
    return plain | {"unstored": repr(parameter.default)[:200]}


def signature_from_plain(plain: Any) -> inspect.Signature:
    """The inverse of ``signature_to_plain``; ``FileFormatError`` for anything else."""
    if not isinstance(plain, list):
        raise FileFormatError("a signature is no list of parameters")
    try:
        return inspect.Signature([_parameter(each) for each in plain])
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"a signature is not in order: {error}") from error


def _parameter(plain: Any) -> inspect.Parameter:
    match plain:
        case {"name": str(name), "kind": str(kind)} if name and kind in _KINDS:
            default: Any = inspect.Parameter.empty
            if "default" in plain:
                default = from_plain(plain["default"])
            elif "unstored" in plain:
                default = Unstored(str(plain["unstored"])[:200])
            return inspect.Parameter(name, _KINDS[kind], default=default)
    raise FileFormatError(f"a parameter of a signature is not readable: {str(plain)[:100]}")


class StoredForward:
    """The forward of a module whose class is not there: its signature, for the program to bind."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.__signature__ = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Never what a model runs: the program stands before it."""
        raise FileFormatError("this module has no program")
