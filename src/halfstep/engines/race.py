"""The fastest of functions that return the same, found out while they run."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ROUNDS = 3


class Race:
    """Functions of a tensor and maybe more, equal in every bit: the fastest for a shape runs.

    On the first call with a shape and number of threads all of them run a few times; from then on
    the fastest alone does. Since their results are the same, this shows in the time only.

    >>> import torch
    >>> from halfstep.engines.race import Race
    >>> race = Race(torch.relu, lambda x: x.clamp(min=0))
    >>> race(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.functions = functions
        self._fastest: dict[tuple[torch.Size, int], Callable[..., Any]] = {}

    def __call__(self, x: Tensor, *rest: Any) -> Any:
        """What every one of the functions returns."""
        key = (x.shape, torch.get_num_threads())
        fastest = self._fastest.get(key)
        if fastest is None:
            fastest = self._fastest[key] = self._run(x, *rest)
        return fastest(x, *rest)

    def _run(self, *args: Any) -> Callable[..., Any]:
        best = dict.fromkeys(range(len(self.functions)), float("inf"))
        for _ in range(_ROUNDS):  # in turn, so that what else the machine does hits all of them
            for index, function in enumerate(self.functions):
                start = time.perf_counter()
                function(*args)
                best[index] = min(best[index], time.perf_counter() - start)
        return self.functions[min(best, key=best.__getitem__)]
