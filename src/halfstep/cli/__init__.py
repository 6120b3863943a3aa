"""The command ``halfstep``: parse, call, print."""

from halfstep.cli.app import main

__all__ = ["main"]
