"""A progress bar on stderr, on a terminal only."""

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")


def steps(items: Iterable[Item], title: str, *, progress: bool | None = None) -> Iterator[Item]:
    """The items, with a bar while they are taken; ``progress=False`` switches it off."""
    shown = sys.stderr.isatty() if progress is None else progress
    if not shown:
        yield from items
        return
    # Here and not above: `import halfstep` loads no rich.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    console = Console(stderr=True, force_terminal=True)
    total = float(len(items)) if isinstance(items, Sized) else None
    yield from track(items, title, total=total, console=console, transient=True)
