"""The tests themselves: each says what it promises, and CI runs with the native kernels."""

import ast
import os
from pathlib import Path

import pytest

from halfstep.numerics import native
from tests.house.repository import ROOT


def unexplained(path: Path) -> list[str]:
    """The test functions of a file without a docstring."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    tests = [node for node in functions if node.name.startswith("test_")]
    return [f"{path.name}: {node.name}" for node in tests if not ast.get_docstring(node)]


def test_every_test_states_its_promise() -> None:
    """A failing test says in words what no longer holds."""
    missing = [
        name for path in sorted((ROOT / "tests").rglob("*.py")) for name in unexplained(path)
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.skipif(
    not os.environ.get("CI") or os.environ.get("HALFSTEP_NATIVE") == "0",
    reason="only where CI is set and the kernels are not switched off",
)
def test_native_kernels_are_in_use_in_ci() -> None:
    """A C++ error must not hide behind the plain-PyTorch fallback."""
    assert native.is_loaded(), native.why_not()
