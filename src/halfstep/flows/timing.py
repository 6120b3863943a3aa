"""How fast each engine runs a model: a table, and the measuring for it."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from halfstep.report.columns import table

FLOAT = "float"
_HEAD = ("engine", "ms", "of fastest", "SQNR", "note")
# In each block so many calls at least; then until there are enough or the time is used up.
_LEAST, _MOST, _SECONDS = 3, 30, 1.0
_BLOCKS, _UNCOUNTED = 3, 2
# Seconds; threads that wait for work spin for a few milliseconds at most.
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Timing:
    """One engine: the median milliseconds of a call, or None and in ``note`` why it did not run.

    sqnr: its float outputs against those of another, in dB; None where there is none to compare.
    """

    engine: str
    ms: float | None = None
    sqnr: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Timings:
    """The engines, fastest first, and below them those that did not run; prints as a table.

    threads: of torch, while it was measured.
    against: what the outputs were compared with.

    >>> from halfstep.flows.timing import Timing, Timings
    >>> print(Timings((Timing("torch", 2.0), Timing("openvino", note="no such operator")), 2))
    engine       ms  of fastest  SQNR  note
    torch     2.000        1.00     -
    openvino      -           -     -  no such operator
    medians of calls, 2 threads
    """

    rows: tuple[Timing, ...]
    threads: int
    against: str = ""

    @property
    def fastest(self) -> str:
        """The engine to use; the float model is none."""
        return next(row.engine for row in self.rows if row.engine != FLOAT and row.ms is not None)

    @property
    def failed(self) -> Mapping[str, str]:
        """The engines that did not run, and why."""
        return {row.engine: row.note for row in self.rows if row.ms is None}

    def __iter__(self) -> Iterator[Timing]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, engine: str) -> Timing:
        return next(row for row in self.rows if row.engine == engine)

    def __str__(self) -> str:
        least = min((row.ms for row in self.rows if row.ms is not None), default=1.0)
        cells = [_cells(row, least) for row in self.rows]
        how = f"medians of calls, {self.threads} thread{'s' * (self.threads != 1)}"
        against = f"; SQNR is against {self.against}" if self.against else ""
        return "\n".join([table(_HEAD, cells, right=(1, 2, 3)), how + against])

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data."""
        rows = [asdict(row) for row in self.rows]
        return {"threads": self.threads, "against": self.against, "engines": rows}


def _cells(row: Timing, least: float) -> tuple[str, ...]:
    if row.ms is None:
        return (row.engine, "-", "-", "-", row.note)
    sqnr = "-" if row.sqnr is None else f"{row.sqnr:.1f} dB"
    return (row.engine, f"{row.ms:.3f}", f"{row.ms / least:.2f}", sqnr, row.note)


def medians(
    calls: Mapping[str, Callable[[], object]], seconds: float = _SECONDS
) -> dict[str, float]:
    """The median milliseconds of each, in blocks that take turns: a busy moment hits all alike.

    seconds: how long each may take in all, beyond the least number of calls.

    Runtimes keep threads of their own, which look for work for a while after a call. A block begins
    with a pause, so that those of the one before have gone to sleep, and with calls that are not
    counted, so that its own are awake.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_BLOCKS):
        for name, call in calls.items():
            time.sleep(_PAUSE)
            for _ in range(_UNCOUNTED):
                call()
            times[name] += _block(call, seconds / _BLOCKS)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def _block(call: Callable[[], object], seconds: float) -> list[float]:
    """The seconds of several calls, one after another."""
    times: list[float] = []
    while len(times) < _LEAST or (sum(times) < seconds and len(times) < _MOST):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
