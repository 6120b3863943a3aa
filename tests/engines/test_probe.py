"""oneDNN runs where it computes our numbers, and only there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from halfstep.engines import onednn, probe

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not onednn.is_there()
    or not torch.cpu._is_vnni_supported()
    or "ONEDNN_MAX_CPU_ISA" in os.environ,
    reason="its exact kernels need VNNI",
)
def test_everything_is_exact_with_vnni() -> None:
    """With VNNI every class is served: a mistake of ours would look like one of theirs."""
    assert all(probe.report().values()), probe.report()


def run(code: str, **environment: str) -> str:
    """What a program prints in a new process with these variables set."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.skipif(not onednn.is_there(), reason="no oneDNN")
def test_saturating_kernels_are_seen() -> None:
    """Held to AVX2, its sums saturate: the probe rules every class out."""
    code = "from halfstep.engines import probe; print(any(probe.report().values()))"
    assert run(code, ONEDNN_MAX_CPU_ISA="AVX2").strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"ONEDNN_MAX_CPU_ISA": "AVX2", "HALFSTEP_NATIVE": "1"}, {"HALFSTEP_NATIVE": "0"}],
)
def test_equality_holds_on_other_machines(variables: dict[str, str]) -> None:
    """The products are equal where oneDNN is not exact, and without our kernels."""
    code = (
        "import sys, pytest; "
        "sys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', "
        "'tests/engines/test_products.py']))"
    )
    assert " passed" in run(code, **variables)
