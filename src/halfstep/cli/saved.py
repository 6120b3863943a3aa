"""The commands on a ``.halfstep`` file: ``halfstep bench`` and ``halfstep export``."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from halfstep.cli.console import output_console, print_plain
from halfstep.cli.outputs import UsageError, check_outputs
from halfstep.cli.words import size
from halfstep.errors import ArgumentError
from halfstep.flows.deploy import bench
from halfstep.flows.example import example_of
from halfstep.flows.named_data import named_data
from halfstep.flows.named_model import called, importable_here, named_model
from halfstep.flows.ship import export_onnx, load
from halfstep.formats import open_model


def bench_file(  # noqa: PLR0913  (the options of one command)
    path: Path,
    *,
    data: str | None,
    shapes: Sequence[str],
    float_name: str | None,
    engines: Sequence[str],
    threads: int | None,
    as_json: bool,
) -> None:
    """Print the table of the engines."""
    if data is not None and shapes:
        raise UsageError("--data has a shape of its own: leave out --shape")
    sizes = [shape_of(text) for text in shapes]
    importable_here()
    if threads is not None:
        torch.set_num_threads(threads)
    float_model = None if float_name is None else named_model(float_name)
    model = _loaded(path, float_model)
    example: Any = (
        example_of(model, sizes or None) if data is None else next(iter(named_data(data, model)))
    )
    measure = partial(bench, model, example, engines=engines or None, float_model=float_model)
    found = called(f"running {path}", measure)
    if as_json:
        output_console().out(json.dumps(found.to_dict(), indent=2), highlight=False)
        return
    for line in str(found).splitlines():
        print_plain(line, output_console())


def export_file(path: Path, output: Path, *, opset: int | None, float_name: str | None) -> None:
    """Write the model as ONNX."""
    check_outputs([output], [path])
    importable_here()
    model = _loaded(path, None if float_name is None else named_model(float_name))
    export_onnx(model, output, opset)
    print_plain(f"written: {output} ({size(output.stat().st_size)})", output_console())


def _loaded(path: Path, float_model: Any) -> Any:
    """The model of a file; of one that holds parts alone only with the float model."""
    opened = open_model(path)
    if "" in opened.regions:
        return load(path)
    if float_model is None:
        raise ArgumentError(
            f"{path} holds parts of a {opened.cls} ({', '.join(opened.regions)}), and no code that "
            "calls them: give the float model with --float, or quantize it with --data, by which "
            "it is captured as a whole"
        )
    return load(path, model=float_model)


def shape_of(text: str) -> tuple[int, ...]:
    """A shape that is written as numbers with commas.

    Raises ``UsageError`` for anything else.

    >>> shape_of("1,3,224,224")
    (1, 3, 224, 224)
    """
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--shape {text}: write numbers with commas, as in 1,3,224,224")
    return tuple(int(part) for part in parts)
