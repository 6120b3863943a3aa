"""Observers across processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from halfstep.observe import MinMaxObserver, sync_observers
from halfstep.spec import int8


@pytest.mark.slow
def test_two_processes_know_what_one_would() -> None:
    """Two ranks, each with half of the data, have the qparams of one with all, in every bit."""
    script = Path(__file__).with_name("two_ranks.py")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, str(script)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(script.parents[2])},
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0 agrees", "rank 1 agrees"]


def test_one_process_has_nothing_to_merge() -> None:
    """Without a process group the call counts the observers and changes nothing."""
    model = nn.Sequential(MinMaxObserver(int8), nn.ReLU(), MinMaxObserver(int8))
    model(torch.randn(4))
    before = model.state_dict()
    assert sync_observers(model) == 2
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
