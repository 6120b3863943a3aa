"""The program as a whole: version, help, info, and arguments that it does not know."""

import importlib.util
import platform
import sys

import pytest
import torch

from halfstep.cli.app import main
from halfstep.numerics import native


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``halfstep``, run in this process."""
    monkeypatch.setattr(sys, "argv", ["halfstep", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 0."""
    code, out, err = run(monkeypatch, capsys, "--version")
    assert (code, err) == (0, "")
    assert out.startswith("halfstep 0.")


def test_help_names_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without colours or boxes when nobody looks at a terminal."""
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert "inspect" in out
    assert "info" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("arguments", [("inspect",), ("no-such-command",), ("info", "--loud")])
def test_wrong_arguments_are_refused(
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reason is on stderr, exit code 2."""
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert err


def test_info_says_what_is_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions, processor, threads, kernels, and each engine or why it is missing."""
    code, out, _ = run(monkeypatch, capsys, "info")
    facts = {line[:18].strip(): line[18:].strip() for line in out.splitlines()}
    assert code == 0
    assert facts["torch"] == torch.__version__
    assert platform.machine() in facts["system"]
    assert facts["threads"].startswith(f"{torch.get_num_threads()} ")
    assert facts["kernels"].startswith("native, " if native.is_loaded() else "plain PyTorch; ")
    for name in ("onnxruntime", "openvino"):
        is_missing = importlib.util.find_spec(name) is None
        assert facts[f"engine {name}"].startswith("missing: not installed; pip") == is_missing


def test_info_says_why_kernels_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason that the loader gives is printed."""
    monkeypatch.setattr(native, "is_loaded", lambda: False)
    monkeypatch.setattr(native, "why_not", lambda: "switched off for this test")
    _, out, _ = run(monkeypatch, capsys, "info")
    assert "native kernels are not in use: switched off for this test" in out
