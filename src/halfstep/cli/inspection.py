"""``halfstep inspect``: open a file, choose tensors, summarize them, and print."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from halfstep.cli.as_json import file_as_json
from halfstep.cli.console import error_console, output_console, print_plain
from halfstep.cli.detail import print_detail
from halfstep.cli.progress import reading
from halfstep.cli.table import print_heading, print_table
from halfstep.cli.view import TensorView, view_of
from halfstep.errors import HalfstepError
from halfstep.formats import StoredTensor, TensorFile, open_file
from halfstep.formats.selection import select


def inspect_files(paths: Sequence[Path], patterns: Sequence[str], *, as_json: bool) -> bool:
    """Print the tensors of files as tables, those that match ``patterns`` in full.

    JSON is one object for one file, and a list for several. A file that cannot be shown is a line
    on stderr, and the next one follows; returns whether all were shown.
    """
    values = []
    for place, path in enumerate(paths):
        try:
            opened, views = _read(path, patterns)
        except HalfstepError as error:
            print_plain(f"halfstep: {error}", error_console())
            continue
        values.append(file_as_json(opened, views, in_full=bool(patterns)) if as_json else None)
        if not as_json:
            _print_for_people(opened, views, is_full=bool(patterns), is_first=place == 0)
    if as_json and (values or len(paths) > 1):
        value = values if len(paths) > 1 else values[0]
        output_console().out(json.dumps(value, indent=2, allow_nan=False), highlight=False)
    return len(values) == len(paths)


def _read(path: Path, patterns: Sequence[str]) -> tuple[TensorFile, list[TensorView]]:
    opened = open_file(path)
    chosen = {name: opened.tensors[name] for name in select(opened.tensors, patterns)}
    return opened, _summarize(chosen)


def _print_for_people(
    opened: TensorFile, views: Sequence[TensorView], *, is_full: bool, is_first: bool
) -> None:
    console = output_console()
    if not is_first:
        console.print()
    if not is_full:
        print_table(opened, views, console)
        return
    print_heading(opened, console)
    for view in views:
        console.print()
        print_detail(view, console)


def _summarize(tensors: Mapping[str, StoredTensor]) -> list[TensorView]:
    with reading(sum(stored.nbytes for stored in tensors.values())) as advance:
        return [view_of(name, stored, advance) for name, stored in tensors.items()]
