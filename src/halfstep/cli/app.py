"""The commands and their options, and how errors leave the program."""

import os
import sys
import warnings
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from halfstep.cli.console import error_console, print_plain
from halfstep.cli.info import print_info
from halfstep.cli.inspection import inspect_files
from halfstep.cli.outputs import UsageError
from halfstep.cli.verbs import bench, demo, explain, export, quantize
from halfstep.errors import HalfstepError, HalfstepWarning

EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2

app = typer.Typer(
    name="halfstep",
    help="Quantization for PyTorch that you can see through.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command; what goes wrong is one line on stderr and exit code 1.

    Options that make no sense are exit code 2, as is a file that ``inspect`` cannot show; a reader
    that closed the pipe, as ``head`` does, is exit code 1 without a word.
    """
    try:
        _run()
    except HalfstepError as error:
        print_plain(f"halfstep: {error}", error_console())
        sys.exit(EXIT_BAD_INPUT if isinstance(error, UsageError) else EXIT_FAILED)
    except OSError as error:  # files that cannot be read are HalfstepErrors: this is the output
        _drop_output()
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else ""
            reason = f"{where}{error.strerror or error}"
            print_plain(f"halfstep: cannot write output: {reason}", error_console())
        sys.exit(EXIT_FAILED)


def _run() -> None:
    if isinstance(sys.stdout, TextIOWrapper):  # names may hold what the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", HalfstepWarning)
            warnings.showwarning = _print_warning
            app()
    finally:
        sys.stdout.flush()  # here, since Python tells of a failure at exit in lines of its own


def _print_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    """What Halfstep warns of is a line; what others tell their own developers is not shown."""
    if issubclass(category, HalfstepWarning):
        print_plain(f"halfstep: warning: {message}", error_console())


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that Python does not try it again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # click calls it by position
    if wanted:
        typer.echo(f"halfstep {version('halfstep')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Quantization for PyTorch that you can see through."""


@app.command()
def inspect(
    file: Annotated[
        list[Path],
        typer.Argument(help="Models of hs.save, safetensors, .pt, .pth, .pt2 or ONNX files."),
    ],
    tensor: Annotated[
        list[str] | None,
        typer.Option(help="Show this tensor in full: a name or a glob; may be repeated."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show the tensors of files: their formats, scales, and how well the integers are used."""
    if not inspect_files(file, tensor or (), as_json=as_json):
        raise typer.Exit(EXIT_BAD_INPUT)


@app.command()
def info() -> None:
    """Show versions, the processor, the kernels in use and the engines found."""
    print_info()


for verb in (quantize, explain, bench, export, demo):
    app.command()(verb)
