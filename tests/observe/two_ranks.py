"""One of two processes: observes half of the data, merges, and compares with one that saw all."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.observe import (
    EntropyObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    PercentileObserver,
    sync_observers,
)
from halfstep.spec import PerChannel, QSpec, int8, uint8
from tests.observe.kinds import same_state
from tests.observe.processes import agree


def build() -> dict[str, Observer]:
    """One observer of each kind."""
    return {
        "min_max": MinMaxObserver(QSpec(int8, PerChannel(1))),
        "histogram": HistogramObserver(uint8),
        "percentile": PercentileObserver(QSpec(uint8, PerChannel(1)), percentile=99.0),
        "entropy": EntropyObserver(QSpec(int8, symmetric=True)),
        "only_on_rank_1": MinMaxObserver(uint8),
        "nowhere": HistogramObserver(uint8),
    }


def observe(model: dict[str, Observer], data: list[Tensor], *, alone: bool) -> None:
    """Run the data through those observers that see any."""
    for name, observer in model.items():
        for batch in data:
            if name != "nowhere" and (alone or name != "only_on_rank_1" or dist.get_rank() == 1):
                observer(batch)


def check_all_equal(model: dict[str, Observer], whole: dict[str, Observer]) -> None:
    """Every buffer and every scale are those of one process, in every bit."""
    for name, observer in model.items():
        if name == "only_on_rank_1":
            continue
        assert same_state(observer, whole[name]), name
        if observer.has_range:
            pairs = zip(observer.qparams(), whole[name].qparams(), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs), name


def check_moving_average(rank: int) -> None:
    """Both ranks hold the weighted mean, with the same bits."""
    average = MovingAverageObserver(uint8)
    average(torch.full((30 - 20 * rank,), 1.0 + 4 * rank))
    sync_observers(average)
    assert average.max_val.item() == 2.0, average.max_val


def check_different_models(rank: int) -> None:
    """Ranks that do not hold the same observers are told so, all of them."""
    with pytest.raises(ArgumentError, match="synchronise the same model on every rank"):
        sync_observers(nn.ModuleDict({f"rank{rank}": MinMaxObserver(uint8)}))


def main() -> None:
    """Every check on this rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = [
        torch.randn(n, 3, 4, generator=torch.Generator().manual_seed(n)) * n for n in range(1, 9)
    ]
    model, whole = build(), build()
    observe(model, data[rank::2], alone=False)
    assert sync_observers(nn.ModuleDict(model)) == 6
    observe(whole, data, alone=True)
    check_all_equal(model, whole)
    assert model["only_on_rank_1"].count == sum(batch.numel() for batch in data[1::2])
    check_moving_average(rank)
    check_different_models(rank)
    agree(rank)


if __name__ == "__main__":
    main()
