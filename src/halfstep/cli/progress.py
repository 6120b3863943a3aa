"""A progress bar on stderr: on a terminal only, and only when reading takes long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from halfstep.cli.console import error_console

PATIENCE_S: Final = 0.5


@contextmanager
def reading(total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that is told how many bytes were read since the last call."""
    console = error_console()
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task("reading", total=total)
    start = time.monotonic()

    def advance(count: int) -> None:
        if not progress.live.is_started and time.monotonic() - start > PATIENCE_S:
            progress.start()
        progress.advance(task, count)

    try:
        yield advance
    finally:
        progress.stop()
