"""The fastest of functions that return the same, found out while they run."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LEAST_ROUNDS, _MOST_ROUNDS = 2, 12
_SECONDS = 3e-3
# So many times as long as the fastest so far: out.
_HOPELESS = 1.5


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
        return self._for(x, *rest)(x, *rest)

    def over(self, x: Tensor, *rest: Any) -> Any:
        """The same, which may write over the last argument."""
        fastest = self._for(x, *rest)
        return getattr(fastest, "over", fastest)(x, *rest)

    def _for(self, x: Tensor, *rest: Any) -> Callable[..., Any]:
        key = (x.shape, torch.get_num_threads())
        fastest = self._fastest.get(key)
        if fastest is None:
            fastest = self._fastest[key] = self._run(x, *rest)
        return fastest

    def _run(self, *args: Any) -> Callable[..., Any]:
        """Rounds in turn, so that what else the machine does hits all; the slow ones drop out.

        A short function runs often, since its time is told from noise by its least; a long one
        twice. A first call, which packs weights and compiles, does not count.
        """
        for function in self.functions:
            function(*args)
        least = dict.fromkeys(self.functions, math.inf)
        running, spent, rounds = list(self.functions), 0.0, 0
        while rounds < _LEAST_ROUNDS or (spent < _SECONDS and rounds < _MOST_ROUNDS):
            for function in running:
                start = time.perf_counter()
                function(*args)
                taken = time.perf_counter() - start
                least[function] = min(least[function], taken)
                spent += taken
            rounds += 1
            bar = _HOPELESS * min(least.values())
            running = [function for function in running if least[function] <= bar]
            if len(running) == 1:
                break
        return min(running, key=least.__getitem__)
