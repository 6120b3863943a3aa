"""``halfstep inspect``: open a file, choose tensors, summarize them, and print."""

import json
from collections.abc import Mapping
from pathlib import Path

from halfstep.cli.as_json import file_as_json
from halfstep.cli.console import output_console
from halfstep.cli.detail import print_detail
from halfstep.cli.progress import reading
from halfstep.cli.selection import select
from halfstep.cli.table import print_table
from halfstep.cli.view import TensorView, view_of
from halfstep.formats import StoredTensor, open_file


def inspect_file(path: Path, patterns: tuple[str, ...], *, as_json: bool) -> None:
    """Print the tensors of a file as a table, those that match ``patterns`` in full.

    Raises ``FileFormatError`` for a bad file and ``ArgumentError`` for a pattern without a match.
    """
    opened = open_file(path)
    chosen = {name: opened.tensors[name] for name in select(opened.tensors, patterns)}
    views = _summarize(chosen)
    if as_json:
        value = file_as_json(opened, views, in_full=bool(patterns))
        output_console().out(json.dumps(value, indent=2, allow_nan=False), highlight=False)
    elif patterns:
        for view in views:
            print_detail(view, output_console())
    else:
        print_table(opened, views, output_console())


def _summarize(tensors: Mapping[str, StoredTensor]) -> list[TensorView]:
    with reading(sum(stored.nbytes for stored in tensors.values())) as advance:
        return [view_of(name, stored, advance) for name, stored in tensors.items()]
