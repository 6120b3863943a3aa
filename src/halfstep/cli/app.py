"""The commands and their options, and how errors leave the program."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from halfstep.cli.console import error_console, print_plain
from halfstep.cli.info import print_info
from halfstep.cli.inspection import inspect_file
from halfstep.errors import HalfstepError

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
    """Run the command; what the user got wrong is one line on stderr and exit code 2."""
    try:
        app()
    except HalfstepError as error:
        print_plain(f"halfstep: {error}", error_console())
        sys.exit(EXIT_BAD_INPUT)


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
    file: Annotated[Path, typer.Argument(help="A safetensors file, or a torch.save checkpoint.")],
    tensor: Annotated[
        list[str] | None,
        typer.Option(help="Show this tensor in full: a name or a glob; may be repeated."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show the tensors of a file: their formats, scales, and how well the integers are used."""
    inspect_file(file, tuple(tensor or ()), as_json=as_json)


@app.command()
def info() -> None:
    """Show versions, the processor, the kernels in use and the engines found."""
    print_info()
