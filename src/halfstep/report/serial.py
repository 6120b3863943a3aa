"""An explanation as plain data and as JSON.

Strict JSON: a number that is not finite is the text "Infinity", "-Infinity" or "NaN", from which
``float`` in Python and ``Number`` in JavaScript make the number again.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from halfstep.errors import HalfstepError
from halfstep.report.records import (
    Advice,
    Error,
    Findings,
    Histogram,
    Kept,
    Layer,
    Split,
    Values,
)
from halfstep.spec.recipe import Recipe

# What readers would otherwise compute again, by the record that has it.
_DERIVED: Mapping[type, tuple[str, ...]] = {
    Error: ("sqnr", "cosine"),
    Split: ("largest",),
    Layer: ("verdict", "is_slower"),
}
_RECORDS = (Advice, Error, Findings, Histogram, Kept, Layer, Split, Values)
_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def to_dict(findings: Findings) -> dict[str, Any]:
    """Everything that was found, as dicts, lists, texts, and numbers which are finite.

    Errors bring their ``sqnr`` and ``cosine``, splits their ``largest`` source, layers their
    ``verdict``. A recipe is what ``Recipe.to_dict`` writes, and its text where it holds an object
    of this process; other rules and remedies are text.

    >>> from halfstep.report.records import Error
    >>> found = Findings("Net", Recipe("mine"), "torch", Error(signal=1.0, elements=1), ())
    >>> to_dict(found)["output"]["sqnr"]
    'Infinity'
    """
    plain = _plain(findings)
    return {**plain, "is_equal": findings.is_equal}


def to_json(findings: Findings) -> str:
    """The same as JSON text.

    >>> from halfstep.report.records import Error
    >>> found = Findings("Net", Recipe("mine"), "torch", Error(), ())
    >>> json.loads(to_json(found))["model"]
    'Net'
    """
    return json.dumps(to_dict(findings), allow_nan=False, indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, Recipe):
        return _recipe(value)
    if isinstance(value, _RECORDS):
        return _record(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, Sequence) else repr(value)


def _record(value: Any) -> dict[str, Any]:
    names = [field.name for field in fields(value)]
    return {name: _plain(getattr(value, name)) for name in (*names, *_DERIVED.get(type(value), ()))}


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else _INFINITE.get(value, "NaN")


def _recipe(recipe: Recipe) -> dict[str, Any] | str:
    try:
        return recipe.to_dict()
    except HalfstepError:
        return str(recipe)
