"""Writes the page of an explanation: one file, which needs no network."""

import base64
import hashlib
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from halfstep.errors import MissingExtraError
from halfstep.formats.atomic import replacing
from halfstep.report.headline import lost, starts
from halfstep.report.page import SCRIPTS
from halfstep.report.page.payload import payload
from halfstep.report.page.view import columns, rows, tiles
from halfstep.report.paste import rules_to_python, to_python
from halfstep.report.records import Findings
from halfstep.report.words import decibels, measured_on, milliseconds

_HERE = Path(__file__).parent


def write_page(findings: Findings, path: Path) -> Path:
    """Write the page to a path, which it takes when it is complete; the path.

    Raises ``MissingExtraError`` without the extra that draws it, and ``OSError`` when the disk
    refuses.
    """
    text = page(findings)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def page(findings: Findings) -> str:
    """The page as text. Raises ``MissingExtraError`` without the extra that draws it."""
    jinja2 = _extra("jinja2")
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(_HERE),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["decibels"] = decibels
    environment.filters["milliseconds"] = milliseconds
    environment.filters["python"] = rules_to_python
    text: str = environment.get_template("page.html.j2").render(_context(findings))
    return text


def _breakable(name: str) -> Any:
    """The name, which a narrow column breaks behind a dot or an underscore."""
    markup = _extra("markupsafe")
    return markup.Markup(re.sub(r"([._])", r"\1<wbr>", str(markup.escape(name))))


def _context(findings: Findings) -> dict[str, Any]:
    shown = columns(findings)
    suggested = findings.suggested_recipe
    # A script element ends at the first `</script`: the files have none, which is tested.
    scripts = {"library": _library(), "script": _script()}
    lines = rows(findings, shown)
    return {
        "found": findings,
        "data": payload(findings),
        "plots": _plots(),
        "columns": shown,
        "rows": lines,
        "tiles": tiles(findings),
        "sentences": [text for text in (lost(findings), starts(findings)) if text],
        "measured_on": measured_on(findings),
        "recipe": "" if suggested is None else to_python(suggested, findings.recipe),
        "first": next((row.place for row in lines), -1),
        "verdicts": sorted({layer.verdict for layer in findings.layers}),
        "runs": sorted({layer.runs for layer in findings.layers}),
        "style": (_HERE / "page.css").read_text(encoding="utf-8"),
        "hashes": " ".join(map(_hash, scripts.values())),
        **scripts,
    }


def _plots() -> str:
    """How each plot looks, in the grammar of Vega-Lite: JSON by the name of the plot."""
    files = sorted((_HERE / "plots").glob("*.json"))
    looks = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    return json.dumps(looks, separators=(",", ":")).replace("<", "\\u003c")


def _script() -> str:
    """The page's own scripts as one, whose names nobody outside sees."""
    parts = [(_HERE / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


@cache
def _library() -> str:
    """Vega-Lite and what it needs."""
    text: str = _extra("vl_convert").javascript_bundle()
    return text.replace("</script", "<\\/script")


def _hash(script: str) -> str:
    """What the page's policy names the script by, so that no other runs."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _extra(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"the page of an explanation is drawn with {name}, which is not installed: "
            "pip install 'halfstep[report]'. print(explanation) and to_json need nothing"
        ) from None
