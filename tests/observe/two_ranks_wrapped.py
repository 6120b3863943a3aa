"""One of two processes: what DistributedDataParallel does with observers and FakeQuantize."""

import warnings

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from halfstep.observe import (
    FakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    sync_observers,
)
from halfstep.spec import PerChannel, QSpec, int8, uint8
from tests.observe.kinds import same_state
from tests.observe.processes import agree


def build(*, learnable: bool = False) -> nn.Sequential:
    """A layer between observers of every sort, the same on every rank."""
    torch.manual_seed(0)
    average = MovingAverageObserver(QSpec(int8, PerChannel(1)), momentum=0.5)
    return nn.Sequential(
        MinMaxObserver(uint8),
        nn.Linear(4, 3),
        FakeQuantize(average, learnable=learnable),
        FakeQuantize(HistogramObserver(uint8)),
    )


def observers_of(model: nn.Module) -> list[Observer]:
    """Every observer, in the order of the model."""
    return [part for part in model.modules() if isinstance(part, Observer)]


def batches(rank: int) -> list[Tensor]:
    """What a rank sees, larger on rank 1."""
    seeds = (torch.Generator().manual_seed(10 * rank + step) for step in range(3))
    return [torch.randn(5, 4, generator=seed) * (1 + rank) for seed in seeds]


def train(model: nn.Module, data: list[Tensor]) -> None:
    """Forward and backward of each batch."""
    for batch in data:
        model(batch).square().sum().backward()


def check_without_broadcast(rank: int) -> None:
    """broadcast_buffers=False: each rank keeps what it saw, and merged they have seen it all."""
    model, alone, whole = build(), build(), build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch renames the argument
        wrapped = DistributedDataParallel(model, broadcast_buffers=False)
    train(wrapped, batches(rank)), train(alone, batches(rank))
    pairs = zip(observers_of(model), observers_of(alone), strict=True)
    assert all(same_state(ours, own) for ours, own in pairs)
    sync_observers(model)
    for batch in (*batches(0), *batches(1)):
        whole[0](batch)
    assert same_state(observers_of(model)[0], observers_of(whole)[0])


def check_with_broadcast(rank: int) -> None:
    """The default: a rank goes on from rank 0's ranges, so all but its last batch are rank 0's."""
    model, alone = build(), build()
    train(DistributedDataParallel(model), batches(rank))
    train(alone, [*batches(0)[:2], batches(rank)[2]])
    pairs = zip(observers_of(model), observers_of(alone), strict=True)
    assert all(same_state(ours, rank_0s) for ours, rank_0s in pairs)


def check_ranges_of_one_rank(rank: int) -> None:
    """A state that rank 0 alone has is brought to all before wrapping, buffers' sizes included."""
    model = build()
    if rank == 0:
        train(model, batches(0))
    sync_observers(model)
    for part in model:
        if isinstance(part, FakeQuantize):
            part.freeze()
    assert observers_of(model)[0].count == 60
    train(DistributedDataParallel(model), batches(rank))


def check_learnable(rank: int) -> None:
    """Learned scales that have their shape get the mean gradient of both ranks."""
    model = build(learnable=True)
    model(batches(0)[0])
    part = model[2]
    assert isinstance(part, FakeQuantize)
    train(DistributedDataParallel(model), batches(rank)[:1])
    assert part.scale.grad is not None
    gradients = [torch.empty_like(part.scale) for _ in range(2)]
    dist.all_gather(gradients, part.scale.grad)
    assert torch.equal(*gradients)
    assert gradients[0].abs().min() > 0


def main() -> None:
    """Every check on this rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    check_without_broadcast(rank)
    check_with_broadcast(rank)
    check_ranges_of_one_rank(rank)
    check_learnable(rank)
    agree(rank)


if __name__ == "__main__":
    main()
