"""Runs the `console` blocks of the documents: what follows `$` is run, what follows is compared.

Lines that start with `$ halfstep` or `$ python` are run in the document's folder. Commands that set
up an environment (`make`, `pip`, `git`) are shown only: running them is what the whole suite does.
"""

import doctest
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator

from sybil import Example

SHOWN_ONLY = ("git ", "make", "pip ", "python -m pip ")
PROGRAMS = {
    "halfstep": [sys.executable, "-c", "from halfstep.cli import main; main()"],
    "python": [sys.executable],
}
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def evaluate_console_block(example: Example) -> str | None:
    """Run a block's commands; the differences from the block as text, or None."""
    differences = (
        difference(command, expected, run(command))
        for command, expected in commands(example.parsed)
        if not command.startswith(SHOWN_ONLY)
    )
    return "\n".join(text for text in differences if text) or None


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with the output written below it."""
    for part in f"\n{block}".split("\n$ ")[1:]:
        command, _, expected = part.partition("\n")
        yield command.strip(), expected


def run(command: str) -> str:
    """What the command prints, standard error last."""
    program, *arguments = shlex.split(command)
    if program not in PROGRAMS:
        message = f"Not run: {command!r}. Start it with one of {', '.join(sorted(PROGRAMS))}."
        raise AssertionError(message)
    environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.run(
        [*PROGRAMS[program], *arguments],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=environment,
        timeout=120,
    )
    return done.stdout + done.stderr


def difference(command: str, expected: str, got: str) -> str:
    """Empty where the outputs agree but for white space and what `...` leaves out."""
    checker = doctest.OutputChecker()
    if checker.check_output(f"{expected}\n", f"{got}\n", LOOSELY):
        return ""
    shown = doctest.Example(command, f"{expected}\n")
    return f"$ {command}\n{checker.output_difference(shown, got, LOOSELY)}"
