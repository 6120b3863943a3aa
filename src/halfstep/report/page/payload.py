"""The data of a page, small: few digits, and each tensor once."""

import json
from collections.abc import Mapping
from typing import Any

from halfstep.report.records import Findings
from halfstep.report.serial import to_dict

_DIGITS = 4
# Scales multiply codes: they are shown with more.
_SCALE_DIGITS = 6
_DROPPED = ("advice", "kept", "notes", "recipe", "suggested_recipe")


def payload(findings: Findings) -> str:
    """JSON for a script element, which it cannot leave: layers, and the tensors they name by place.

    >>> from halfstep.report.records import Error, Layer
    >>> from halfstep.spec.recipe import Recipe
    >>> layer = Layer("</script>", "", "add", "float")
    >>> found = Findings("Net", Recipe("mine"), "torch", Error(), (layer,))
    >>> "</script>" in payload(found), json.loads(payload(found))["layers"][0]["value"]
    (False, '</script>')
    """
    plain = to_dict(findings)
    tensors: dict[str, int] = {}
    layers = [_layer(layer, tensors) for layer in plain["layers"]]
    for place, advice in enumerate(plain["advice"]):
        _attach(advice, place, layers)
    whole = {key: _short(value) for key, value in plain.items() if key not in _DROPPED}
    text = json.dumps({**whole, "layers": layers}, allow_nan=False, separators=(",", ":"))
    # The tensors are JSON already; `<` in a text would end the element or open a comment in it.
    return f'{text[:-1]},"tensors":[{",".join(tensors)}]}}'.replace("<", "\\u003c")


def _layer(layer: dict[str, Any], tensors: dict[str, int]) -> dict[str, Any]:
    shown = {
        key: _short(value)
        for key, value in layer.items()
        if key not in ("weight", "inputs", "output")
    }
    return {
        **shown,
        "advice": [],
        "weight": _placed(layer["weight"], tensors),
        "inputs": [_placed(values, tensors) for values in layer["inputs"]],
        "output": _placed(layer["output"], tensors),
    }


def _placed(values: dict[str, Any] | None, tensors: dict[str, int]) -> int | None:
    """The place of a tensor: what one layer makes and another takes is written once."""
    if values is None:
        return None
    text = json.dumps(_short(values), allow_nan=False, separators=(",", ":"))
    return tensors.setdefault(text, len(tensors))


def _attach(advice: Mapping[str, Any], place: int, layers: list[dict[str, Any]]) -> None:
    for layer in layers:
        if advice["layer"] and advice["layer"] in (layer["layer"], layer["value"]):
            layer["advice"].append(
                {
                    "place": place + 1,
                    **{key: advice[key] for key in ("cause", "evidence", "action")},
                }
            )


def _short(value: Any, digits: int = _DIGITS) -> Any:
    if isinstance(value, float):
        return _rounded(value, digits)
    if isinstance(value, dict):
        return {
            key: _short(item, _SCALE_DIGITS if key == "scale" else digits)
            for key, item in value.items()
        }
    return [_short(item, digits) for item in value] if isinstance(value, list) else value


def _rounded(value: float, digits: int) -> float | int:
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
