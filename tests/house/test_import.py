"""`import halfstep` is quick and loads nothing that it does not need."""

import subprocess
import sys

import pytest

import halfstep

ALLOWED_PACKAGES = {"halfstep", "safetensors"}

LOADED = "import sys, torch; b = set(sys.modules); import halfstep; print(*set(sys.modules) - b)"


def python(code: str) -> str:
    """What the code prints in a fresh interpreter."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout


def test_import_loads_only_torch_safetensors_and_the_standard_library() -> None:
    """Neither typer nor rich nor any extra is loaded by importing the library."""
    tops = {name.partition(".")[0] for name in python(LOADED).split()}
    # Compiled modules of a package may register a bare name.
    foreign = tops - ALLOWED_PACKAGES - set(sys.stdlib_module_names)
    assert not foreign, f"import halfstep loaded {sorted(foreign)}"


def test_import_loads_no_part_of_torch_ao() -> None:
    """Halfstep works in a torch without torch.ao, so it loads nothing of it."""
    loaded = [name for name in python(LOADED).split() if name.startswith("torch.ao")]
    assert not loaded


def test_import_loads_no_room_of_whole_models() -> None:
    """Importing stays quick: graphs, engines, files and flows are loaded when they are named.

    Of graphs only the recurrent operators are there, which recipes and exported programs name.
    """
    loaded = {name for name in python(LOADED).split() if name.startswith("halfstep.")}
    rooms = {name.split(".")[1] for name in loaded}
    assert rooms == {"errors", "spec", "numerics", "tensor", "observe", "graph"}
    assert {name for name in loaded if ".graph." in name} == {"halfstep.graph.recurrent"}


def test_every_name_is_there_after_the_import() -> None:
    """What is loaded later is listed before, and found."""
    missing = python(
        "import halfstep; print(*[n for n in dir(halfstep) if not hasattr(halfstep, n)])"
    )
    assert not missing.strip()
    assert set(halfstep.__all__) <= set(dir(halfstep))


def test_a_name_that_does_not_exist_is_refused() -> None:
    """A misspelt name is an AttributeError, as in every module."""
    with pytest.raises(AttributeError, match="module 'halfstep' has no attribute 'quantise'"):
        getattr(halfstep, "quantise")  # noqa: B009 - a type checker would refuse the plain form
