"""Side-by-side timing: interleaved repeats, medians, ratios first, one table and one JSON file."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from halfstep.numerics import native

RESULTS = Path(__file__).parent / "results"

# glibc gives large blocks back to the system and then pays for fresh pages at each allocation. With
# these thresholds it keeps them, so that ratios compare the kernels.
KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**32)}


@dataclass(frozen=True)
class Row:
    """One operation on one input: medians in milliseconds, and the ratios that are asked of it."""

    operation: str
    tensor: str
    ours: float
    torch: float
    clone: float
    least_against_torch: float | None = None
    least_against_clone: float | None = None

    @property
    def against_torch(self) -> float:
        """How many times faster than torch's own."""
        return self.torch / self.ours

    @property
    def against_clone(self) -> float:
        """The speed, that of copying the input being 1."""
        return self.clone / self.ours

    @property
    def holds(self) -> bool:
        """Whether both ratios are at least what is asked."""
        return self.against_torch >= (self.least_against_torch or 0.0) and self.against_clone >= (
            self.least_against_clone or 0.0
        )


def medians(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median milliseconds of each, measured in turns so that a busy moment hits all alike.

    Each timed call follows an untimed one of the same, so that none pays for what another left in
    the caches, or for threads that another let fall asleep.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            function()
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernels": native.level() or native.why_not(),
    }


def print_table(title: str, rows: list[Row]) -> None:
    """A table, ratio first; a ratio that is less than asked stands in red."""
    table = Table(title=title)
    for heading in ("x torch", "x clone"):
        table.add_column(heading, justify="right")
    table.add_column("operation")
    table.add_column("tensor")
    for heading in ("ours ms", "torch ms", "clone ms"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            _ratio(row.against_torch, row.least_against_torch),
            _ratio(row.against_clone, row.least_against_clone),
            row.operation,
            row.tensor,
            *(f"{value:.4g}" for value in (row.ours, row.torch, row.clone)),
        )
    console = Console()
    # A file has no width of its own, and 80 columns would break every line of the table.
    (console if console.is_terminal else Console(width=130)).print(table)


def _ratio(value: float, least: float | None) -> str:
    if least is None:
        return f"{value:.2f}"
    color = "green" if value >= least else "red"
    return f"[{color}]{value:.2f}[/] (>= {least:g})"


def write_json(name: str, sections: Mapping[str, list[Row]]) -> Path:
    """Write the rows and the machine to ``results/NAME.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    tables = {title: [asdict(row) for row in rows] for title, rows in sections.items()}
    path.write_text(json.dumps({"machine": machine(), "milliseconds": tables}, indent=1) + "\n")
    return path
