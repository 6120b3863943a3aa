"""Observers across the processes of ``torch.distributed``."""

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.observe.observer import Observer, observers_in

State = dict[str, Tensor]


def sync_observers(module: nn.Module, group: Any = None) -> int:
    """Merge every observer of ``module`` across the ranks of ``group``; return how many there are.

        state = merge(state of rank 0, state of rank 1, ...)    the same on every rank

    For all observers but the moving average the result equals, in every bit, one process that saw
    all data. Call it once, when all ranks have seen theirs: what it merged counts as seen on every
    rank. Ranks without data are fine. Without a process group there is one rank, and nothing to do.
    Buffers must not be broadcast meanwhile: give DistributedDataParallel broadcast_buffers=False.

    Raises ``ArgumentError`` when the ranks do not have the same observers.

    >>> import halfstep as hs, torch
    >>> hs.sync_observers(torch.nn.Sequential(hs.MinMaxObserver(hs.int8)))
    1
    """
    observers = observers_in(module)
    if not (dist.is_available() and dist.is_initialized()):
        return len(observers)
    mine = {name: _portable(observer) for name, observer in observers.items()}
    ranks: list[dict[str, State]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(ranks, mine, group=group)
    for rank, states in enumerate(ranks):
        if set(states) != set(observers):
            raise ArgumentError(
                f"rank {rank} has the observers {sorted(states)}, and this one "
                f"{sorted(observers)}: synchronise the same model on every rank"
            )
    for name, observer in observers.items():
        _merge_all(observer, [states[name] for states in ranks])
    return len(observers)


def _portable(observer: Observer) -> State:
    """The state without its device, which another rank may not have."""
    return {name: value.cpu() for name, value in observer.state_dict().items()}


def _merge_all(observer: Observer, states: list[State]) -> None:
    """Make ``observer`` the merge of all states, in the order of the ranks."""
    hand = observer.hand_lo.clone(), observer.hand_hi.clone()
    part = copy.deepcopy(observer)
    observer.reset()
    with torch.no_grad():
        for state in states:
            part.load_state_dict(state)
            observer.merge(part)
        for name, value in zip(("hand_lo", "hand_hi"), hand, strict=True):
            observer.resize(name, tuple(value.shape)).copy_(value)
