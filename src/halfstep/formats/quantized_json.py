"""Calibrated programs as JSON: what is decided of their steps, and the formats of their values."""

from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias, TypeVar

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.plain_trees import checked_text, edge_from_plain, edge_to_plain, from_plain
from halfstep.formats.program_json import MAX_DIMS, Keep, Load, program_from_plain, program_to_plain
from halfstep.graph.program import Program
from halfstep.graph.quantized import Decision, Execution, Quantized
from halfstep.spec import QSpec

Part: TypeAlias = Program | Quantized
Read = TypeVar("Read")
_TABLES: Final = ("edges", "decisions", "weights", "shapes", "dtypes")


def part_to_plain(part: Part, keep: Keep) -> dict[str, Any]:
    """A program, calibrated or not, as JSON values; ``keep`` stores its constants.

    >>> import torch
    >>> from halfstep.graph.export import export
    >>> program = export(torch.nn.ReLU(), (torch.ones(2, 3),))
    >>> decisions = {"relu": Decision(Execution.FLOAT, "asked for")}
    >>> plain = part_to_plain(Quantized(program, decisions=decisions), lambda name, tensor: name)
    >>> plain["decisions"]
    {'relu': {'execution': 'float', 'reason': 'asked for'}}
    """
    if isinstance(part, Program):
        return {"program": program_to_plain(part, keep)}
    return {
        "program": program_to_plain(part.program, keep),
        "edges": {name: edge_to_plain(edge) for name, edge in part.edges.items()},
        "decisions": {name: _decision_to_plain(made) for name, made in part.decisions.items()},
        "weights": {name: spec.to_dict() for name, spec in part.weights.items()},
        "shapes": {name: list(shape) for name, shape in part.shapes.items()},
        "dtypes": dict(part.dtypes),
    }


def part_from_plain(plain: Any, load: Load) -> Part:
    """The inverse of ``part_to_plain``; ``load`` brings the constants. Nothing is executed.

    Raises ``FileFormatError`` for anything else than a program in order, over allowed operators.
    """
    tables = dict(plain) if isinstance(plain, dict) else {}
    program = program_from_plain(tables.pop("program", None), load)
    if not tables:
        return program
    if set(tables) != {*_TABLES}:
        raise FileFormatError(f"a calibrated program has {', '.join(map(str, tables))[:200]}")
    steps = {step.name for step in program.steps}
    given = {*program.parameters, *program.constants}
    values = steps | given | {each.value.name for each in program.inputs}
    return Quantized(
        program,
        edges=_read(tables["edges"], values, edge_from_plain),
        decisions=_read(tables["decisions"], steps, _decision),
        weights=_read(tables["weights"], given, _spec),
        shapes=_read(tables["shapes"], values, _shape),
        dtypes=_read(tables["dtypes"], values, _dtype),
    )


def _read(plain: Any, known: Collection[str], read: Callable[[Any], Read]) -> dict[str, Read]:
    """A table by the names of values or steps."""
    if not isinstance(plain, dict):
        raise FileFormatError(f"a table of a calibrated program is none: {str(plain)[:100]}")
    found = {}
    for name, each in plain.items():
        if name not in known:
            raise FileFormatError(
                f"something is said of {name[:100]!r}, which its program does not have"
            )
        try:
            found[name] = read(each)
        except HalfstepError as error:
            raise FileFormatError(f"what is said of {name[:100]!r}: {error}") from error
    return found


def _decision_to_plain(made: Decision) -> dict[str, Any]:
    plain: dict[str, Any] = {"execution": made.execution.value}
    if made.reason:
        plain["reason"] = made.reason
    formats = {"weight": made.weight, "input": made.input}
    return plain | {name: spec.to_dict() for name, spec in formats.items() if spec is not None}


def _decision(plain: Any) -> Decision:
    rest = dict(plain) if isinstance(plain, dict) else {}
    how = rest.pop("execution", None)
    if how not in [each.value for each in Execution]:
        raise FileFormatError(f"it runs in the unknown way {str(how)[:50]!r}")
    reason = checked_text(rest.pop("reason", ""), "the reason")
    weight, given = (_spec(rest.pop(key)) if key in rest else None for key in ("weight", "input"))
    if rest:
        raise FileFormatError(f"it has unknown parts: {str(rest)[:100]}")
    return Decision(Execution(how), reason, weight, given)


def _spec(plain: Any) -> QSpec:
    try:
        return QSpec.from_dict(plain)
    except TypeError as error:
        raise FileFormatError(f"its format is not readable: {error}") from error


def _shape(plain: Any) -> tuple[int, ...]:
    is_shape = isinstance(plain, list) and all(
        isinstance(size, int) and 0 <= size < 1 << 48 for size in plain
    )
    if not is_shape or len(plain) > MAX_DIMS:
        raise FileFormatError(f"its shape is none: {str(plain)[:100]}")
    return tuple(plain)


def _dtype(plain: Any) -> str:
    name: str = from_plain({"dtype": plain}).name
    return name
