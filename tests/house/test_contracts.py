"""The map of the rooms holds, and both linters notice when somebody leaves it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.house.repository import PACKAGE, ROOMS, ROOT

IMPORT_LINTER = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts on the package under `root`, not on the installed one."""
    # -S: the finder of an editable install would lead back to the installed package.
    search = os.pathsep.join([str(root / "src"), sysconfig.get_path("purelib")])
    return subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_LINTER, "--no-cache", "--no-logo"],
        capture_output=True,
        check=False,
        cwd=root,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": search, "NO_COLOR": "1"},
    )


def lint_names(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the banned names and imports under `root`."""
    return subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--select=TID", "src"],
        capture_output=True,
        check=False,
        cwd=root,
        encoding="utf-8",
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package and its settings, to plant a violation in."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(PACKAGE, tmp_path / "src" / "halfstep", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(root: Path, module: str, line: str) -> None:
    """Add a line of code to a module of the copy."""
    with (root / "src" / "halfstep" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")


def test_contracts_hold(copy: Path) -> None:
    """Imports go down only, no cycles, no room that is not on the map."""
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


def test_banned_names_are_absent(copy: Path) -> None:
    """No room says a name that its ruff.toml bans."""
    done = lint_names(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors.py", "import halfstep.spec", "Imports go down only"),
        ("spec/__init__.py", "import halfstep.numerics", "Imports go down only"),
        ("spec/dtypes.py", "def late() -> None:\n    import halfstep.tensor", "Imports go down"),
        ("spec/dtypes.py", "import halfstep.spec.qspec", "No import cycle"),
        ("numerics/affine.py", "import rich", "Only the command line"),
    ],
)
def test_planted_imports_are_caught(copy: Path, module: str, line: str, contract: str) -> None:
    """An import upwards, sideways into a cycle, or of a command line library breaks a contract."""
    plant(copy, module, line)
    done = lint_imports(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [text for text in done.stdout.splitlines() if text.endswith("BROKEN")]
    assert any(text.startswith(contract) for text in broken), done.stdout


def test_unknown_room_is_caught(copy: Path) -> None:
    """A new room has to be put on the map before anything else."""
    room = copy / "src" / "halfstep" / "helpers"
    room.mkdir()
    (room / "__init__.py").touch()
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "halfstep.helpers" in done.stdout


@pytest.mark.parametrize(
    ("module", "line", "code"),
    [
        ("spec/dtypes.py", "from torch import nn", "TID251"),
        ("numerics/affine.py", "import torch.fx", "TID251"),
        ("numerics/affine.py", "from torch.nn import Module", "TID251"),
        ("tensor/__init__.py", "import torch.ao.quantization", "TID251"),
        ("formats/__init__.py", "import pickle\npickle.loads(b'')", "TID251"),
        ("formats/__init__.py", "import torch\ntorch.load('x')", "TID251"),
        ("cli/__init__.py", "from torch.nn import Linear", "TID251"),
        ("spec/qspec.py", "from .dtypes import QDType", "TID252"),
    ],
)
def test_planted_names_are_caught(copy: Path, module: str, line: str, code: str) -> None:
    """A name that a room may not say, and a relative import, are reported where they stand."""
    plant(copy, module, line)
    done = lint_names(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert code in done.stdout
    assert Path("src/halfstep", module).as_posix() in done.stdout


def test_every_room_repeats_the_common_bans() -> None:
    """A room's list of banned names replaces the common one, so it has to contain it."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    common = re.findall(r'^"[\w.]+"\.msg = .*$', settings, flags=re.MULTILINE)
    assert common
    for room in ROOMS:
        settings_of_room = PACKAGE / room / "ruff.toml"
        assert settings_of_room.exists(), f"{room} has no ruff.toml that says what it may not touch"
        own = settings_of_room.read_text(encoding="utf-8").splitlines()
        assert set(common) <= set(own), f"{room}/ruff.toml lacks a common entry"
