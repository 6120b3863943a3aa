"""Observers across processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from halfstep.observe import (
    FakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    sync_observers,
)
from halfstep.spec import int8


def run_two_ranks(name: str) -> None:
    """Run a script of this folder in two processes; each must say that it agrees."""
    script = Path(__file__).with_name(name)
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


@pytest.mark.slow
def test_two_processes_know_what_one_would() -> None:
    """Two ranks, each with half of the data, have the qparams of one with all, in every bit."""
    run_two_ranks("two_ranks.py")


@pytest.mark.slow
def test_distributed_data_parallel_wraps_observers() -> None:
    """Observers and FakeQuantize train in DistributedDataParallel, buffers broadcast or not."""
    run_two_ranks("two_ranks_wrapped.py")


def wrapped_model() -> nn.Sequential:
    """Observers on a device and in FakeQuantize, plain and learned."""
    return nn.Sequential(
        MinMaxObserver(int8),
        FakeQuantize(HistogramObserver(int8)),
        FakeQuantize(MovingAverageObserver(int8), learnable=True),
    )


def test_data_parallel_without_devices_calls_the_module() -> None:
    """DataParallel on the CPU is the module itself: same output, same state."""
    model, alone = wrapped_model(), wrapped_model()
    parallel = nn.DataParallel(model)
    for batch in (torch.randn(4, 3), 3 * torch.randn(4, 3)):
        assert torch.equal(parallel(batch), alone(batch))
    for ours, own in zip(model.buffers(), alone.buffers(), strict=True):
        assert torch.equal(ours, own)


def test_replica_with_the_same_buffers_observes_for_the_model() -> None:
    """DataParallel's first replica is a copy that shares buffers: what it sees is not lost."""
    observer = MinMaxObserver(int8)
    for batch in (torch.ones(3), torch.full((3,), -2.0)):
        observer._replicate_for_data_parallel()(batch)
    assert (observer.count, observer.min_val.item(), observer.max_val.item()) == (6, -2.0, 1.0)


def test_one_process_has_nothing_to_merge() -> None:
    """Without a process group the call counts the observers and changes nothing."""
    model = nn.Sequential(MinMaxObserver(int8), nn.ReLU(), MinMaxObserver(int8))
    model(torch.randn(4))
    before = model.state_dict()
    assert sync_observers(model) == 2
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True)
    )
