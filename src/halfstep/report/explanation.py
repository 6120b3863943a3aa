"""Explanation: what quantizing did to a model, as text, as data, and as a page."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfstep.report import notebook, serial, terminal
from halfstep.report.page.write import write_page
from halfstep.report.records import Findings
from halfstep.report.words import counted, decibels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Findings):
    """Everything that is known of what quantizing did to a model, and where its accuracy went.

    It prints as a table, worst first, which fits 100 columns; ``rich.print`` adds colors. A
    notebook shows it as HTML, ``to_dict`` and ``to_json`` give all of it as data, and ``to_html``
    writes a page with every layer's histograms, ranges, errors and integers.

    >>> from halfstep.report.records import Error
    >>> from halfstep.spec.recipe import Recipe
    >>> output = Error(signal=1.0, noise=0.01, product=1.0, power=1.0, largest=0.2, elements=10)
    >>> found = Explanation("Net", Recipe("mine"), "torch", output, (), batches=1, samples=2)
    >>> found
    Explanation(Net, recipe mine, output SQNR 20.0 dB, 0 layers, 0 pieces of advice)
    >>> print(found)
    Net, recipe mine, engine torch, measured on 2 samples in 1 batch
    The output has an SQNR of 20.0 dB: the error is 10 % of the signal.
    No layer stands out by an error of its own: the loss is spread over all.
      output SQNR  20.0 dB
      cosine       1.000000
      max error    0.2
    """

    def __repr__(self) -> str:
        layers = counted(len(self.layers), "layer")
        advice = counted(len(self.advice), "piece")
        output = decibels(self.output.sqnr)
        about = f"{self.model}, recipe {self.recipe.name}, output SQNR {output}"
        return f"{type(self).__name__}({about}, {layers}, {advice} of advice)"

    def __str__(self) -> str:
        return terminal.to_text(self)

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        yield from terminal.renderables(self)

    def _repr_html_(self) -> str:
        return notebook.to_fragment(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, texts and finite numbers, for JSON.

        A number that is not finite is the text "Infinity", "-Infinity" or "NaN".
        """
        return serial.to_dict(self)

    def to_json(self) -> str:
        """The same as JSON text."""
        return serial.to_json(self)

    def to_html(self, path: str | Path) -> Path:
        """Write one page that shows all of it, works without a network, and can be printed.

        It needs ``pip install 'halfstep[report]'``. An old file is replaced when the new one is
        complete. Returns the path.

        Raises ``MissingExtraError`` without the extra, and ``OSError`` when the disk refuses.
        """
        return write_page(self, Path(path))
