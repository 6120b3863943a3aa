"""The repository works anywhere: it names no machine, no neighbouring folder and no mirror."""

import re
from pathlib import Path

import pytest

from tests.house.repository import ROOT, committed_files

# Written in pieces, so that this file passes its own test.
TRACES = {
    "a path of one machine": r"(?<![\w.])/(?:ro" + r"ot|ho" + r"me|wo" + r"rk|us" + r"ers|opt)/\w",
    "a folder beside the repository": r"\.\./sha" + r"red\b|\bsha" + r"red/(?:design|models)\b",
    "a registry host": r"py" + r"pi\.org|pythonhos" + r"ted|download\.pyto" + r"rch",
}
BINARY = {".bin", ".npy", ".npz", ".onnx", ".pb", ".pt", ".pth", ".safetensors"}


def traces(text: str) -> list[str]:
    """What the text gives away."""
    return [what for what, pattern in TRACES.items() if re.search(pattern, text, re.IGNORECASE)]


@pytest.mark.parametrize("path", committed_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_file_names_no_machine(path: Path) -> None:
    """A clone on another machine finds nothing that exists only where it was written."""
    if path.suffix not in BINARY:
        assert not traces(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    ["cd /ro" + "ot/halfstep", "see ../sha" + "red/notes", "get it from py" + "pi.org"],
)
def test_planted_trace_is_found(text: str) -> None:
    """The patterns find what they are there to find."""
    assert traces(text)
