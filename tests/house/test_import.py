"""`import halfstep` is quick and loads nothing that it does not need."""

import statistics
import subprocess
import sys

import pytest

ALLOWED_SECONDS = 0.3
ALLOWED_PACKAGES = {"halfstep", "safetensors"}

LOADED = "import sys, torch; b = set(sys.modules); import halfstep; print(*set(sys.modules) - b)"
# Processor time, not wall time: a test running beside this one does not count.
SECONDS = (
    "import time, torch; start = time.process_time(); import halfstep;"
    "print(time.process_time() - start)"
)


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


@pytest.mark.slow
def test_import_is_quick() -> None:
    """Importing halfstep costs at most 0.3 s on top of importing torch."""
    python(SECONDS)  # writes the byte code
    seconds = statistics.median(float(python(SECONDS)) for _ in range(5))
    assert seconds <= ALLOWED_SECONDS, f"import halfstep took {seconds:.3f} s over import torch"
