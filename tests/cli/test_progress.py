"""The progress bar: silent in a pipe, silent when reading is quick, there when it takes long."""

import io

import pytest
from rich.console import Console

from halfstep.cli import progress


def drawn(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, patience: float) -> str:
    """What a reading of two pieces draws."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=is_terminal, width=80)
    monkeypatch.setattr(progress, "error_console", lambda: console)
    monkeypatch.setattr(progress, "PATIENCE_S", patience)
    with progress.reading(10) as advance:
        advance(5)
        advance(5)
    return stream.getvalue()


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn where nobody looks."""
    assert drawn(monkeypatch, is_terminal=False, patience=-1) == ""


def test_quick_reading_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flicker for a small file."""
    assert drawn(monkeypatch, is_terminal=True, patience=60) == ""


def test_long_reading_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar with the bytes read, on a terminal."""
    assert "reading" in drawn(monkeypatch, is_terminal=True, patience=-1)
