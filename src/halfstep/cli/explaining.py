"""``halfstep explain``: a quantized file beside its float model, on data."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from halfstep.cli.console import output_console, print_plain
from halfstep.cli.outputs import check_outputs
from halfstep.cli.words import size
from halfstep.flows.explain import explain
from halfstep.flows.named_data import named_data
from halfstep.flows.named_model import called, importable_here, named_model
from halfstep.flows.ship import load
from halfstep.formats import open_model
from halfstep.formats.atomic import replacing
from halfstep.report.explanation import Explanation


@dataclass(frozen=True, kw_only=True)
class Question:
    """The arguments of ``halfstep explain``."""

    model: str
    quantized: Path
    data: str
    weights: Path | None = None
    batch_size: int | None = None
    max_batches: int | None = None
    min_sqnr: float | None = None
    timed: bool = True
    html: Path | None = None
    json: Path | None = None


def explain_file(question: Question) -> None:
    """Measure, print, and write what was asked for."""
    inputs = [question.model, str(question.quantized), question.data, question.weights]
    check_outputs([question.html, question.json], inputs)
    importable_here()
    found = _measured(question)
    console = output_console()
    for line in str(found).splitlines():
        print_plain(line, console)
    if question.json is not None:
        with replacing(question.json) as file:
            file.write(found.to_json().encode())
    if question.html is not None:
        found.to_html(question.html)
    for path in (question.html, question.json):
        if path is not None:
            print_plain(f"written: {path} ({size(path.stat().st_size)})", console)


def _measured(question: Question) -> Explanation:
    opened = open_model(question.quantized)
    model = named_model(question.model, question.weights)
    batches = named_data(question.data, model, question.batch_size)
    quantized = load(question.quantized, model=None if "" in opened.regions else model)
    ask = partial(explain, model, quantized, batches, recipe=opened.recipe, timed=question.timed)
    options = {"max_batches": question.max_batches, "min_sqnr": question.min_sqnr}
    found: Explanation = called(f"explaining {question.quantized}", partial(ask, **options))
    return found
