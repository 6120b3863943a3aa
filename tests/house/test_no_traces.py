"""The repository works anywhere: it names no machine, no neighbouring folder and no mirror."""

import re

import pytest

from tests.house.repository import ROOT, committed_files

# Written in pieces, so that this file passes its own test.
TRACES = {
    "a path of one machine": r"(?<![\w.])/(?:ro" + r"ot|ho" + r"me|wo" + r"rk|us" + r"ers|opt)/\w",
    "a folder beside the repository": r"\.\./sha" + r"red\b|\bsha" + r"red/(?:design|models)\b",
    "a registry host": r"py" + r"pi\.org|pythonhos" + r"ted|download\.pyto" + r"rch",
}
BINARY = {
    ".bin",
    ".halfstep",
    ".npy",
    ".npz",
    ".onnx",
    ".pb",
    ".png",
    ".pt",
    ".pth",
    ".safetensors",
}


def traces(text: str) -> list[str]:
    """What the text gives away."""
    return [what for what, pattern in TRACES.items() if re.search(pattern, text, re.IGNORECASE)]


def test_no_file_names_a_machine() -> None:
    """A clone on another machine finds nothing that exists only where it was written."""
    text_files = [path for path in committed_files() if path.suffix not in BINARY]
    found = [
        f"{path.relative_to(ROOT)}: {what}"
        for path in text_files
        for what in traces(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["cd /ro" + "ot/halfstep", "see ../sha" + "red/notes", "get it from py" + "pi.org"],
)
def test_planted_trace_is_found(text: str) -> None:
    """The patterns find what they are there to find."""
    assert traces(text)
