"""The file of the page: small, whole, self-contained, and only with what draws it."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import halfstep as hs
from halfstep.report.page import SCRIPTS
from halfstep.report.page import write as module
from halfstep.report.page.payload import payload
from halfstep.report.records import SOURCES
from tests import explanations

FOLDER = Path(module.__file__).parent


def read(path: Path) -> dict[str, Any]:
    """The data in the page."""
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>',
        path.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert found is not None
    plain: dict[str, Any] = json.loads(found[1])
    return plain


def document(path: Path) -> str:
    """The page before its scripts, the data included."""
    return path.read_text(encoding="utf-8").partition("<script>")[0]


def test_file_is_small_and_names_no_address(written: Callable[[str], Path]) -> None:
    """A network of 80 layers takes less than 5 MB; nothing in the file is fetched."""
    path = written("network")
    assert path.stat().st_size < 5_000_000
    text = document(path)
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?!data:)', text)
    assert "default-src 'none'" in text


def test_tensors_are_written_once_and_short() -> None:
    """What one layer makes and the next reads is one tensor; numbers have few digits."""
    found = explanations.network(2)
    shared = found.layers[0].output
    assert shared is not None
    layers = (found.layers[0], replace(found.layers[1], inputs=(shared,)))
    plain = json.loads(payload(replace(found, layers=layers)))
    assert plain["layers"][1]["inputs"] == [plain["layers"][0]["output"]]
    assert len(plain["tensors"]) == 5
    assert plain["layers"][0]["local"]["noise"] == float(f"{found.layers[0].local.noise:.4g}")


def test_names_cannot_leave_the_data(written: Callable[[str], Path]) -> None:
    """A name that closes the element arrives as a name, in data and in the document."""
    path = written("hostile")
    name = explanations.hostile().model
    assert read(path)["model"] == name
    assert "<img" not in document(path)


def test_the_pages_own_scripts_can_stand_in_an_element() -> None:
    """No script holds what ends its element or opens a comment, and none is left out."""
    assert {path.name for path in FOLDER.glob("*.js")} == set(SCRIPTS)
    for name in SCRIPTS:
        text = (FOLDER / name).read_text(encoding="utf-8").lower()
        assert "</script" not in text
        assert "<!--" not in text


def test_scripts_stay_small() -> None:
    """What a reader has to understand beside the plotting library, comments included."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS]
    assert sum(len(text.splitlines()) for text in texts) < 620
    assert max(len(line) for text in texts for line in text.splitlines()) <= 100


def test_every_source_of_error_has_a_color() -> None:
    """The plot of the split knows the sources that there are, and the style sheet their colors."""
    split = json.loads((FOLDER / "plots" / "split.json").read_text(encoding="utf-8"))
    scale = split["encoding"]["color"]["scale"]
    assert scale["domain"] == [*SOURCES, "cross terms", "total"]
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    for name, color in zip(scale["domain"], scale["range"], strict=True):
        assert color == f"var(--{name.replace(' ', '-')})"
        assert f"--{name.replace(' ', '-')}: light-dark(" in style


def test_old_file_stays_when_the_new_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing package is named with what installs it, and nothing is overwritten."""
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(hs.MissingExtraError, match=r"pip install 'halfstep\[report\]'"):
        explanations.network(2).to_html(path)
    assert path.read_text() == "old"


def test_page_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    """A path as text is taken, and given back as a path."""
    assert explanations.empty().to_html(str(tmp_path / "a.html")) == tmp_path / "a.html"
    with pytest.raises(FileNotFoundError, match="no such folder"):
        explanations.empty().to_html(tmp_path / "missing" / "a.html")
