"""Why a module could not be captured, in one line for people."""

import re
from pathlib import Path

# Torch's error for it, by name: its module takes most of a second to load.
_DEPENDS_ON_DATA = "GuardOnDataDependentSymNode"
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in \w+\n\s*(.+)')


def readable(error: Exception) -> str:
    r"""The first line of an error, or what it means; where in the user's code, if it says so.

    >>> from halfstep.graph.reasons import readable
    >>> readable(ValueError("no such size\nand much more"))
    'no such size'
    """
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    if _DEPENDS_ON_DATA in {kind.__name__ for kind in type(error).__mro__}:
        first = "its Python code depends on the values of a tensor"
    places = _PLACE.findall(text)
    if not places:
        return first
    file, line, code = places[-1]
    return f"{first}: `{code.strip()}` ({Path(file).name}, line {line})"
