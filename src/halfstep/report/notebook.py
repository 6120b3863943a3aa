"""An explanation in a notebook: a few lines and the worst layers, as HTML without scripts."""

from collections.abc import Iterable
from html import escape

from halfstep.report.headline import figures, lost, starts, worst_first
from halfstep.report.records import Error, Findings, Layer
from halfstep.report.words import counted, decibels, measured_on, name_of

_SHOWN = 10
_HEAD = ("layer", "op", "runs as", "alone", "so far", "verdict")


def to_fragment(findings: Findings) -> str:
    """What is found, as a piece of HTML.

    >>> from halfstep.report.records import Error
    >>> from halfstep.spec.recipe import Recipe
    >>> found = Findings("A<b>", Recipe("mine"), "torch", Error(), (), batches=1, samples=2)
    >>> to_fragment(found).split("</p>")[0]
    '<p><b>A&lt;b&gt;</b>, recipe mine, engine torch, measured on 2 samples in 1 batch'
    """
    about = f"recipe {findings.recipe.name}, engine {findings.engine}, {measured_on(findings)}"
    sentences = " ".join(filter(None, (lost(findings), starts(findings))))
    parts = [f"<p><b>{escape(findings.model)}</b>, {escape(about)}</p>", f"<p>{escape(sentences)}"]
    parts += [f"<br>{escape(name)}: {escape(value)}" for name, value in figures(findings)]
    return "".join([*parts, "</p>", _table(findings), _advice(findings)])


def _table(findings: Findings) -> str:
    measured = [layer for layer in findings.layers if layer.accumulated is not None]
    if not measured or findings.is_equal:
        return ""
    worst = worst_first(measured)[:_SHOWN]
    body = "".join(map(_row, map(_cells, worst)))
    more = len(measured) - len(worst)
    left = f"<p>and {counted(more, 'better layer')}</p>" if more else ""
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{left}"


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _cells(layer: Layer) -> tuple[str, ...]:
    errors = _sqnr(layer.local), _sqnr(layer.accumulated)
    return (name_of(layer), layer.op, layer.runs, *errors, layer.verdict)


def _sqnr(error: Error | None) -> str:
    return "" if error is None else decibels(error.sqnr)


def _advice(findings: Findings) -> str:
    items = "".join(f"<li>{escape(str(advice))}</li>" for advice in findings.advice[:3])
    return f"<ol>{items}</ol>" if items else ""
