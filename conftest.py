"""Makes every example in README.md and docs/ a test, and every run repeatable."""

import doctest
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from tests.console_blocks import evaluate_console_block

ROOT = Path(__file__).resolve().parent


def enter_workspace(namespace: dict[str, Any]) -> None:
    """Start a document in an empty folder, with `examples/` where its commands name it."""
    workspace = tempfile.TemporaryDirectory(prefix="halfstep-docs-")
    (Path(workspace.name) / "examples").symlink_to(ROOT / "examples")
    namespace["_workspace"], namespace["_cwd"] = workspace, Path.cwd()
    os.chdir(workspace.name)


def leave_workspace(namespace: dict[str, Any]) -> None:
    """Undo `enter_workspace`."""
    os.chdir(namespace["_cwd"])
    namespace["_workspace"].cleanup()


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(
            doctest_optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
        ),
        CodeBlockParser(language="console", evaluator=evaluate_console_block),
    ],
    patterns=["*.md"],
    setup=enter_workspace,
    teardown=leave_workspace,
).pytest()


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """Give every test the same random numbers and the number of threads that it found."""
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
