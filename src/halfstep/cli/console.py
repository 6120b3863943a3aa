"""Where the command prints: as wide as a terminal, or unbroken lines into a file or a pipe."""

import re
from typing import Final

from rich.console import Console
from rich.text import Text

UNBROKEN_WIDTH: Final = 2000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def output_console() -> Console:
    """The console on stdout."""
    return _console(stderr=False)


def error_console() -> Console:
    """The console on stderr."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = UNBROKEN_WIDTH
    return console


def printable(text: str) -> Text:
    r"""Text from a file, safe on a terminal: control characters are shown, not obeyed.

    >>> str(printable("red\x1b[31m"))
    'red\\x1b[31m'
    """
    return Text(escaped(text))


def escaped(text: str) -> str:
    r"""``printable`` as a string.

    >>> escaped("half \ud800")
    'half \\ud800'
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def print_plain(text: str, console: Console) -> None:
    """One line, printed as it is."""
    console.print(printable(text), soft_wrap=True)
